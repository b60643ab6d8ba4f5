"""A moto server for the CDK's command line, with what moto's CloudFormation lacks for the stacks of node-fleet.

`python -m tests.support.deployment.server PORT` runs it. TYPES and PARTS name every addition; a test holds each of them
to a moto without additions, so that one which moto has gained is found and removed.
"""

from __future__ import annotations

import contextlib
import graphlib
import ipaddress
import json
import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import CloudFormationError, ValidationError
from moto.cloudformation.models import CloudFormationBackend, cloudformation_backends
from moto.ec2 import ec2_backends
from moto.ec2.models.subnets import Subnet
from moto.ec2.models.vpcs import VPC
from moto.server import main

from tests.support.deployment.resource_types import TYPES, Properties, model


def install(endpoint: str) -> None:
    """Add everything to the moto of this process. Its own API is at `endpoint`."""
    parsing.added = [model(one, endpoint) for one in TYPES]  # moto finds the classes for as long as they are kept
    parsing.get_model_list.cache_clear()
    parsing.get_model_map.cache_clear()
    for add in PARTS.values():
        add()


def _add_functions() -> None:
    clean = parsing.clean_json

    def clean_json(value: Any, resources: Any) -> Any:
        if isinstance(value, dict) and "Fn::GetStackOutput" in value:
            return _stack_output(clean_json(value["Fn::GetStackOutput"], resources), resources)
        if isinstance(value, dict) and "Fn::Cidr" in value:
            return _blocks(*clean_json(value["Fn::Cidr"], resources))
        return clean(value, resources)

    parsing.clean_json = clean_json


def _stack_output(given: Properties, resources: Any) -> str:
    backend = cloudformation_backends[resources["AWS::AccountId"]][given["Region"]]
    outputs = backend.get_stack(given["StackName"]).output_map
    value: str = outputs[given["OutputName"]].value
    return value


def _blocks(block: str, count: int, bits: str) -> list[str]:
    network = ipaddress.ip_network(block)
    blocks = network.subnets(new_prefix=network.max_prefixlen - int(bits))
    return [str(part) for _, part in zip(range(int(count)), blocks, strict=False)]


def _add_vpc_attributes() -> None:
    get = VPC.get_cfn_attribute

    def get_cfn_attribute(vpc: Any, attribute: str) -> Any:
        if attribute == "Ipv6CidrBlocks":
            return [one["cidr_block"] for one in vpc.get_cidr_block_association_set(ipv6=True)]
        return get(vpc, attribute)

    VPC.get_cfn_attribute = get_cfn_attribute


def _add_blocks_of_subnets() -> None:
    create = Subnet.create_from_cloudformation_json

    def create_from_cloudformation_json(
        name: str, cloudformation_json: Any, account_id: str, region_name: str, **given: Any
    ) -> Any:
        subnet = create(name, cloudformation_json, account_id, region_name, **given)
        block = cloudformation_json["Properties"]["Ipv6CidrBlock"]
        ec2_backends[account_id][region_name].associate_subnet_cidr_block(subnet.id, block)
        return subnet

    Subnet.create_from_cloudformation_json = create_from_cloudformation_json


def _add_substitutions() -> None:
    clean = parsing.clean_json

    def clean_json(value: Any, resources: Any) -> Any:
        cleaned = clean(value, resources)
        if isinstance(cleaned, dict):
            for name, text in cleaned.get("DefinitionSubstitutions", {}).items():
                cleaned["DefinitionString"] = cleaned["DefinitionString"].replace(f"${{{name}}}", text)
        return cleaned

    parsing.clean_json = clean_json


def _add_order() -> None:
    """A change set in the order of the references; an error for a change that moto would leave out."""

    def update(resources: Any, template: Any, parameters: Any = None) -> None:
        old, new = resources._resource_json_map, template["Resources"]
        resources._template, resources._resource_json_map = template, new
        resources.input_parameters = parameters or resources.input_parameters
        resources.load_mapping()
        resources.load_parameters()
        resources.load_conditions()
        for name in _in_order(new):
            if name in old and old[name] != new[name]:
                given = {"account_id": resources._account_id, "region_name": resources._region_name}
                updated = parsing.parse_and_update_resource(name, new[name], resources, **given)
                if updated is None:
                    raise NotImplementedError(f"a change of {new[name]['Type']} is not deployed here")
                resources._parsed_resources[name] = updated
            _ = resources[name]
        for name in old.keys() - new.keys():
            resources._delete_resource(resources._parsed_resources.pop(name), old[name])

    parsing.ResourceMap.update = update


def _in_order(template: Properties) -> list[str]:
    """The names of the resources, each after those that it names."""
    quoted = {name: set(re.findall(r'"(\w+)"', json.dumps(one))) & template.keys() for name, one in template.items()}
    sorter = graphlib.TopologicalSorter({name: names - {name} for name, names in quoted.items()})
    return list(sorter.static_order())


class ChangeSetNotFound(CloudFormationError):
    code = "ChangeSetNotFound"


def _add_missing_change_sets() -> None:
    """The error of a change set that does not exist, and a deletion that accepts it."""
    describe, delete = CloudFormationBackend.describe_change_set, CloudFormationBackend.delete_change_set

    def describe_change_set(backend: Any, change_set_name: str) -> Any:
        try:
            return describe(backend, change_set_name)
        except ValidationError as error:
            raise ChangeSetNotFound(f"ChangeSet [{change_set_name}] does not exist") from error

    def delete_change_set(backend: Any, change_set_name: str) -> None:
        with contextlib.suppress(UnboundLocalError):
            delete(backend, change_set_name)

    CloudFormationBackend.describe_change_set = describe_change_set
    CloudFormationBackend.delete_change_set = delete_change_set


def _add_previous_values() -> None:
    """A parameter that keeps its previous value is that value, and no name in the Parameter Store."""
    parse = parsing.ResourceMap.parse_ssm_parameter

    def parse_ssm_parameter(resources: Any, value: str, value_type: str) -> str:
        return parse(resources, value, value_type) if value.startswith("/") else value

    parsing.ResourceMap.parse_ssm_parameter = parse_ssm_parameter


def _delete_route_table(backend: Any, identity: str) -> None:
    for association in list(backend.get_route_table(identity).associations):
        backend.disassociate_route_table(association)
    backend.delete_route_table(identity)


def _delete_gateway(backend: Any, identity: str) -> None:
    gateway = backend.get_internet_gateway(identity)
    if gateway.vpc:
        backend.detach_internet_gateway(identity, gateway.vpc.id)
    backend.delete_internet_gateway(identity)


DELETIONS: dict[str, Callable[[Any, str], Any]] = {
    "AWS::EC2::FlowLog": lambda backend, identity: backend.delete_flow_logs([identity]),
    "AWS::EC2::InternetGateway": _delete_gateway,
    "AWS::EC2::RouteTable": _delete_route_table,
    "AWS::EC2::VPCEndpoint": lambda backend, identity: backend.delete_vpc_endpoints([identity]),
}
"""Types that moto's CloudFormation creates and never deletes. Routes and rules of a group end with what holds them."""


def _add_deletions() -> None:
    """Deletion in the reverse order of creation, of all types, except for what the template retains."""
    delete = parsing.ResourceMap._delete_resource

    def delete_resource(resources: Any, resource: Any, resource_json: Any) -> None:
        if resource_json.get("DeletionPolicy") == "Retain":  # moto's update deletes it
            return
        if resource_json["Type"] in DELETIONS:
            backend = ec2_backends[resources._account_id][resources._region_name]
            DELETIONS[resource_json["Type"]](backend, resource.physical_resource_id)
        else:
            delete(resources, resource, resource_json)

    def delete_all(resources: Any) -> None:
        created = [name for name in resources._parsed_resources if name in resources._resource_json_map]
        for name in reversed(created):  # moto tries in any order, until all are deleted or none more can be
            delete_resource(resources, resources._parsed_resources.pop(name), resources._resource_json_map[name])

    parsing.ResourceMap._delete_resource = delete_resource
    parsing.ResourceMap.delete = delete_all


def _add_outcomes() -> None:
    """Outputs and exports of a stack that a change set made, and the failure of a change set or of a deletion."""
    CloudFormationBackend.execute_change_set = _execute_change_set
    CloudFormationBackend.delete_stack = _delete_stack


def _execute_change_set(backend: Any, change_set_name: str, stack_name: str | None = None) -> None:
    """As moto's, with outputs and exports, and with a status that says so when a resource could not be made."""
    change_set = backend.describe_change_set(change_set_name)
    stack, kind = change_set.stack, change_set.change_set_type
    stack._add_stack_event(f"{kind}_IN_PROGRESS", resource_status_reason="User Initiated")
    status, reason = f"{kind}_COMPLETE", None
    stack.resource_map.cross_stack_resources = backend.exports
    try:
        change_set.apply()
        stack.template = change_set.template
        stack._parse_template()
        stack.output_map = parsing.OutputMap(stack.resource_map, stack.template_dict, stack.stack_id)
        list(stack.output_map.values())
        backend.exports.update({export.name: export for export in stack.exports})
    except Exception as error:  # the command line shows it
        traceback.print_exc()
        status, reason = f"{'' if kind == 'CREATE' else 'UPDATE_'}ROLLBACK_COMPLETE", f"{type(error).__name__}: {error}"
    del backend.change_sets[change_set.change_set_id]  # moto would find it again by its name, for any other stack
    stack.status = status
    stack._add_stack_event(status, resource_status_reason=reason)


def _delete_stack(backend: Any, name_or_stack_id: str) -> None:
    """As moto's, with a status that says so when a resource could not be deleted."""
    stack = backend.get_stack(name_or_stack_id)
    try:
        exported = [export.name for export in stack.exports]
        stack.delete()
    except Exception as error:  # the command line shows it
        traceback.print_exc()
        stack.status = "DELETE_FAILED"
        stack._add_stack_event(stack.status, resource_status_reason=f"{type(error).__name__}: {error}")
        return
    stack.output_map = parsing.OutputMap(stack.resource_map, {}, stack.stack_id)
    for name in exported:
        del backend.exports[name]
    del backend.stacks[stack.stack_id]
    backend.deleted_stacks[stack.stack_id] = stack


PARTS: dict[str, Callable[[], None]] = {
    "Fn::GetStackOutput and Fn::Cidr": _add_functions,
    "AWS::EC2::VPC Ipv6CidrBlocks": _add_vpc_attributes,
    "AWS::EC2::Subnet Ipv6CidrBlock": _add_blocks_of_subnets,
    "AWS::StepFunctions::StateMachine DefinitionSubstitutions": _add_substitutions,
    "order of a change set": _add_order,
    "change sets that do not exist": _add_missing_change_sets,
    "previous values of parameters": _add_previous_values,
    "deletion of all types, in order": _add_deletions,
    "outputs and failures of a change set": _add_outcomes,
}


if __name__ == "__main__":
    port = sys.argv[1]
    os.environ["MOTO_PORT"] = port
    install(f"http://localhost:{port}")
    main(["-p", port])
