"""ui: a page on this machine on which a person moves settings and sees fleet, waiting and cost on a load.

Opens the port, the processes that replay, and the browser. The answers are in ui_server.
"""

from __future__ import annotations

import secrets
import signal
import socket
import time
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cdk_app.json_file import configuration_file
from cli.output import CommandError, WrongUseError, note
from cli.target import DEFAULT_CLUSTER, seconds_of

HOST, PORT = "127.0.0.1", 8700
LOAD_HINT = "give a CSV of time,value, the JSON of a range query, or the URL of a Prometheus"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples: node-fleet ui | node-fleet ui load.csv | node-fleet ui http://localhost:30090 | "
        "node-fleet ui load.csv --write --port 0 --no-browser"
    )(ui)


def ui(
    data: Annotated[
        str, typer.Argument(help="A load: a CSV or JSON file (.gz too), or the URL of a Prometheus. Else an example.")
    ] = "",
    *,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on this machine; 0: a free one.")] = PORT,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Let the page write settings into cdk.json.")] = False,
    cluster: Annotated[
        str, typer.Option(envvar="NODE_FLEET_CLUSTER", help="Cluster id in cdk.json.")
    ] = DEFAULT_CLUSTER,
) -> None:
    """Open a page on which you move settings and see fleet, waiting and cost on a load, beside other autoscalers."""
    from backtest.sources import is_url
    from backtest.what_if import Board, WhatIf, processes
    from cli.ui_server import Server
    from cli.ui_settings import ConfiguredCluster

    url = data if is_url(data) else ""
    trace = _trace("" if url else data)
    configured = ConfiguredCluster(configuration_file(), cluster)
    settings = configured.changed({}).settings  # refuses a wrong file before the page opens
    note(f"settings: cluster {cluster} of {configured.path}, preset {settings.preset}")
    board = Board()
    with _listening(port) as listener, processes(board) as executor:
        server = Server(
            port=listener.getsockname()[1],
            token=secrets.token_urlsafe(24),
            cluster=configured,
            what_if=WhatIf(executor, board),
            read_prometheus=_read_prometheus,
            may_write=write,
            prometheus_url=url,
        )
        server.load(trace)
        _serve(server, listener, opens=not no_browser)


def _trace(data: str) -> Any:
    from backtest.generated import generated_traces
    from backtest.trace import TraceError, read_trace

    if not data:
        return replace(next(generated_traces(range(1))), name="an example, a generated week")
    try:
        return read_trace(Path(data))
    except TraceError as error:
        raise CommandError(str(error), hint=error.hint or LOAD_HINT) from error


def _listening(port: int) -> socket.socket:
    """The socket of the page, on this machine only.

    Raises:
        CommandError: the port cannot be used.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if hasattr(signal, "SIGKILL"):  # on Windows the option would let two programs share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        text = f"port {port} of this machine cannot be used: {error.strerror}"
        raise CommandError(text, hint="give another one with --port, or --port 0 for a free one") from error
    return listener


def _read_prometheus(url: str, query: str, past: str, step: str) -> Any:
    from backtest.sources import Range, from_prometheus, is_url
    from cli.backtest import prometheus_session

    if not is_url(url):
        raise WrongUseError(f"{url!r} is not the URL of a Prometheus", hint="type it like http://localhost:30090")
    until = int(time.time())
    asked = Range(
        query=query, since=until - seconds_of(past, "how far back"), until=until, step_seconds=seconds_of(step, "step")
    )
    return from_prometheus(prometheus_session(), url, asked)


def _serve(server: Any, listener: socket.socket, *, opens: bool) -> None:
    """Answer until Ctrl-C."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Silent(WSGIRequestHandler):
        """Logs no request: its address has the token."""

        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C, which a script's & ignores
    serving = make_server(HOST, server.port, server, threaded=True, request_handler=Silent, fd=listener.fileno())
    print(f"the page: {server.address}", flush=True)  # never wrapped
    note("only this machine can open it; Ctrl-C ends it")
    if opens and not _open(server.address):
        note("no browser with windows was found: open the address yourself")
    serving.serve_forever()
    note("ended: the page is no longer served")


def _open(address: str) -> bool:
    """Open the page in a browser with windows; one of the terminal would wait for a page that is not served yet."""
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return False
    is_of_terminal = isinstance(found, webbrowser.GenericBrowser) and not isinstance(
        found, webbrowser.BackgroundBrowser
    )
    return not is_of_terminal and found.open(address)
