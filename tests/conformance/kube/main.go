// One binary with a whole Kubernetes control plane in it, for the conformance tests. The first argument names the part:
//
//	kube etcd DIRECTORY CLIENT_URL PEER_URL
//	kube apiserver|controller-manager|scheduler FLAGS
//
// Each part is a process of its own, so that a test can stop or pause one of them.
package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var parts = map[string]func() *cobra.Command{
	"apiserver":          apiserver.NewAPIServerCommand,
	"controller-manager": controllers.NewControllerManagerCommand,
	"scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	if len(os.Args) < 2 {
		refuse("name a part: etcd, apiserver, controller-manager or scheduler")
	}
	part, arguments := os.Args[1], os.Args[2:]
	if part == "etcd" {
		serveEtcd(arguments)
		return
	}
	command, known := parts[part]
	if !known {
		refuse("there is no part " + part)
	}
	os.Args = append([]string{"kube-" + part}, arguments...)
	os.Exit(cli.Run(command()))
}

// serveEtcd keeps a store for one control plane until a signal ends it. It never waits for the disk: no store of a test
// has to survive the machine.
func serveEtcd(arguments []string) {
	if len(arguments) != 3 {
		refuse("etcd needs a directory, a client URL and a peer URL")
	}
	config := embed.NewConfig()
	config.Dir = arguments[0]
	config.LogLevel = "warn"
	config.UnsafeNoFsync = true
	config.ListenClientUrls = []url.URL{address(arguments[1])}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = []url.URL{address(arguments[2])}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	server, err := embed.StartEtcd(config)
	if err != nil {
		refuse(err.Error())
	}
	defer server.Close()
	select {
	case <-signals:
	case err := <-server.Err():
		refuse(err.Error())
	}
}

func address(text string) url.URL {
	parsed, err := url.Parse(text)
	if err != nil {
		refuse(err.Error())
	}
	return *parsed
}

func refuse(message string) {
	fmt.Fprintln(os.Stderr, "kube:", message)
	os.Exit(2)
}
