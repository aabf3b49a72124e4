"""Every reference inside a bundle meets what it refers to: selectors and pods, ports and probes, volumes and mounts,
claims and templates, producers and consumers, names and limits. What holds is checked on the rendered texts alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.fidelity.renders import CASES, ROLE, Case, Role, names

every_case = pytest.mark.parametrize("case", CASES, ids=names)

# Kubernetes: a qualified name of 63 characters with an optional DNS-1123 prefix of 253; a value of 63 characters.
LABEL_KEY = re.compile(
    r"(?:(?=.{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
PORT_NAME = re.compile(r"(?=.{1,15}$)(?=.*[a-z])[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")

SET_NAME_LIMIT = 47  # disaggregatedset-observed.md, Shape: set name + role name, or the service's name passes 63

UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text: str) -> float:
    """A Kubernetes quantity as a number."""
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()  # type: ignore[union-attr]
    return float(number) * (0.001 if unit == "m" else UNITS[unit])


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a matchLabels selector takes these labels; an empty one takes everything and is never meant."""
    assert selector
    return selector.items() <= labels.items()


def ports(role: Role) -> dict[str, int]:
    """Named ports of every container of the pod."""
    return {port["name"]: port["containerPort"] for box in role.containers for port in box.get("ports", [])}


def flag(argv: list[str], name: str) -> str | None:
    """The value of a flag, given as one word or two."""
    for index, word in enumerate(argv):
        if word == name:
            return argv[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def transfer(role: Role, kind: str) -> dict[str, Any] | None:
    """``--ec-transfer-config`` or ``--kv-transfer-config`` of a role."""
    text = flag(role.argv, f"--{kind}-transfer-config")
    return json.loads(text) if text else None


def test_both_forms_of_every_disaggregated_topology_are_looked_at() -> None:
    # The module's promise is "both workload forms": the cases must hold them.
    seen = {
        (case.spec["release"], case.spec["topology"], role.kind)
        for case in CASES
        for role in case.roles.values()
        if case.spec["server"] == "vllm"
    }
    for topology in ("e-pd", "e-p-d"):
        assert {("main", topology, kind) for kind in ("Deployment", "DisaggregatedSet")} <= seen
        assert {("v0.9", topology, kind) for kind in ("Deployment", "DisaggregatedSet")} <= seen
        assert ("v0.8", topology, "Deployment") in seen


@every_case
def test_workloads_select_their_own_pods_and_no_other_role(case: Case) -> None:
    for role in case.roles.values():
        assert role.labels[ROLE] == role.name
        if role.selector is not None:
            taken = [other.name for other in case.roles.values() if selects(role.selector, other.labels)]
            assert taken == [role.name]


@every_case
def test_the_pool_takes_the_pods_that_the_router_schedules(case: Case) -> None:
    # vLLM: each stage is a profile of the router. SGLang: decode pods call the encoders themselves (router.md §5.4).
    pool = case.values["router"]["modelServers"]["matchLabels"]
    wanted = ["decode"] if case.spec["server"] == "sglang" else list(case.roles)
    assert [role.name for role in case.roles.values() if selects(pool, role.labels)] == wanted


@every_case
def test_the_pool_s_port_is_served_in_every_pod_of_the_pool(case: Case) -> None:
    (target,) = case.values["router"]["modelServers"]["targetPorts"]
    pool = case.values["router"]["modelServers"]["matchLabels"]
    for role in case.roles.values():
        if not selects(pool, role.labels):
            continue
        front = role.sidecar or role.engine
        assert target["number"] in [port["containerPort"] for port in front["ports"]], role.name


@every_case
def test_a_sidecar_stands_in_front_of_decode_alone_and_forwards_to_its_engine(case: Case) -> None:
    disaggregated = case.spec["topology"] != "aggregation" and case.spec["server"] == "vllm"
    assert [role.name for role in case.roles.values() if role.sidecar] == (["decode"] if disaggregated else [])
    if not disaggregated:
        return
    decode = case.roles["decode"]
    assert decode.sidecar is not None
    assert decode.sidecar["restartPolicy"] == "Always"  # a native sidecar, not an init container to wait for
    args = decode.sidecar["args"]
    assert int(flag(args, "--port") or 0) == ports(decode)["sidecar"]
    # The sidecar finds the engine on its default (router-flags.csv: 8001 on v0.9.0, else 8200), unless it is told.
    default = 8001 if case.spec["release"] == "v0.8" else 8200
    forwarded = int(flag(args, "--vllm-port") or flag(args, "--model-server-port") or default)
    assert forwarded == ports(decode)["modelserver"]


@every_case
def test_the_engine_listens_where_its_port_is_declared(case: Case) -> None:
    for role in case.roles.values():
        # 8000 is the default of `vllm serve`; SGLang is always told.
        assert int(flag(role.argv, "--port") or 8000) == ports(role)["modelserver"]


@every_case
def test_ports_of_a_pod_have_names_and_numbers_of_their_own(case: Case) -> None:
    for role in case.roles.values():
        declared = [port for box in role.containers for port in box.get("ports", [])]
        assert len({port["name"] for port in declared}) == len(declared)
        assert len({port["containerPort"] for port in declared}) == len(declared)
        assert [port["name"] for port in declared if not PORT_NAME.fullmatch(port["name"])] == []


@every_case
def test_probes_ask_a_named_port_of_their_own_container(case: Case) -> None:
    for role in case.roles.values():
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = role.engine[kind]
            asked = (probe.get("httpGet") or probe["tcpSocket"])["port"]
            assert asked in [port["name"] for port in role.engine["ports"]]


@every_case
def test_mounts_have_volumes_and_volumes_are_mounted(case: Case) -> None:
    for role in case.roles.values():
        volumes = [volume["name"] for volume in role.pod.get("volumes", [])]
        mounts = [mount for box in role.containers for mount in box.get("volumeMounts", [])]
        assert len(set(volumes)) == len(volumes)
        assert {mount["name"] for mount in mounts} == set(volumes)
        paths = [mount["mountPath"] for mount in role.engine["volumeMounts"]]
        assert len(set(paths)) == len(paths)
        assert "/dev/shm" in paths


@every_case
def test_claims_have_templates_with_the_devices_of_the_role(case: Case) -> None:
    templates = {item["metadata"]["name"]: item for item in case.of_kind("ResourceClaimTemplate")}
    used = set()
    for role in case.roles.values():
        in_pod = {claim["name"]: claim["resourceClaimTemplateName"] for claim in role.pod.get("resourceClaims", [])}
        asked = [claim["name"] for claim in role.engine["resources"].get("claims", [])]
        assert asked == list(in_pod)
        for template in in_pod.values():
            (request,) = templates[template]["spec"]["spec"]["devices"]["requests"]
            assert request["exactly"]["count"] == case.spec[role.name]["accelerators"]
            used.add(template)
        counted = {
            key: value for key, value in role.engine["resources"]["limits"].items() if key.endswith(("gpu", "tpu"))
        }
        assert bool(counted) != bool(in_pod)  # one way or the other, never both, never neither
        assert [int(value) for value in counted.values()] in ([], [case.spec[role.name]["accelerators"]])
    assert used == set(templates)


@every_case
def test_limits_hold_requests_and_devices_are_equal_in_both(case: Case) -> None:
    for role in case.roles.values():
        limits, requests = role.engine["resources"]["limits"], role.engine["resources"]["requests"]
        assert set(limits) == set(requests)
        for name in limits:
            assert quantity(requests[name]) <= quantity(limits[name])
            if "/" in name:  # Kubernetes: an extended resource's request must equal its limit
                assert requests[name] == limits[name]


@every_case
def test_the_encoder_cache_fits_in_shared_memory_and_that_in_memory(case: Case) -> None:
    for role in case.roles.values():
        (shm,) = [volume["emptyDir"] for volume in role.pod["volumes"] if volume["name"] == "shm"]
        assert shm["medium"] == "Memory"
        assert quantity(shm["sizeLimit"]) <= quantity(role.engine["resources"]["limits"]["memory"])
        ec = transfer(role, "ec") or {}
        cache = ec.get("ec_connector_extra_config", {}).get("ec_cpu_bytes", 0)
        assert cache <= quantity(shm["sizeLimit"])


@every_case
def test_embeddings_have_one_producer_role_and_one_consumer_role_that_agree(case: Case) -> None:
    configs = {name: config for name, role in case.roles.items() if (config := transfer(role, "ec"))}
    if case.spec["topology"] == "aggregation" or case.spec["server"] == "sglang":
        assert configs == {}
        return
    consumer = "prefill" if "prefill" in case.roles else "decode"
    assert {name: config["ec_role"] for name, config in configs.items()} == {
        "encode": "ec_producer",
        consumer: "ec_consumer",
    }
    producer, taker = configs["encode"], configs[consumer]
    assert producer["ec_connector"] == taker["ec_connector"]
    # Both ends of a transfer read the same switches; sizes are each end's own.
    shared = ("ec_enable_nixl", "shared_storage_path", "mooncake_protocol")
    for key in shared:
        one, other = (config["ec_connector_extra_config"].get(key) for config in (producer, taker))
        assert one == other
    # model-servers.md §0.8: both run the same vLLM release and model string, or every transfer is refused.
    ends = (case.roles["encode"], case.roles[consumer])
    assert len({role.argv[2] for role in ends}) == 1
    if "decode" not in case.said and consumer == "decode":
        assert len({role.engine["image"] for role in ends}) == 1


@every_case
def test_the_kv_cache_goes_from_prefill_to_decode_and_nowhere_else(case: Case) -> None:
    configs = {name: config for name, role in case.roles.items() if (config := transfer(role, "kv"))}
    if "prefill" not in case.roles:
        assert configs == {}
        return
    assert set(configs) == {"prefill", "decode"}
    assert configs["prefill"] == configs["decode"]
    # model-servers.md §1.3: the hybrid cache manager is part of the handshake hash.
    for name in configs:
        assert "--no-disable-hybrid-kv-cache-manager" in case.roles[name].argv
        assert case.roles[name].env["VLLM_NIXL_SIDE_CHANNEL_HOST"] == {"fieldRef": {"fieldPath": "status.podIP"}}


@every_case
def test_side_channels_announce_the_pod_s_address_and_a_declared_port(case: Case) -> None:
    for role in case.roles.values():
        declared = ports(role).values()
        for name, value in role.env.items():
            if name.endswith("_SIDE_CHANNEL_HOST"):
                assert value == {"fieldRef": {"fieldPath": "status.podIP"}}
            if name.endswith("_SIDE_CHANNEL_PORT"):
                assert int(value) in declared
        ec = transfer(role, "ec") or {}
        if "ec_port" in ec:
            assert ec["ec_port"] in declared
        referred = {word for text in role.argv for word in re.findall(r"\$\(([A-Z_]+)\)", text)}
        assert referred <= set(role.env)  # $(NAME) in an argument is left as it stands where NAME is not set


@every_case
def test_the_router_listens_for_kv_events_where_the_engines_publish_them(case: Case) -> None:
    producers = [item for item in case.config["plugins"] if item["type"] == "precise-prefix-cache-producer"]
    publishers = {
        name: json.loads(text) for name, role in case.roles.items() if (text := flag(role.argv, "--kv-events-config"))
    }
    if case.spec["routing"] != "precise":
        assert (producers, publishers) == ([], {})
        return
    (producer,) = producers
    parameters = producer["parameters"]
    assert list(publishers) == [name for name in case.roles if name != "encode"]  # encode pods hold no KV cache
    for name, config in publishers.items():
        role = case.roles[name]
        assert config["enable_kv_cache_events"] is True
        port = parameters["kvEventsConfig"]["podDiscoveryConfig"]["socketPort"]
        assert config["endpoint"] == f"tcp://*:{port}"
        assert port in ports(role).values()
        assert config["topic"].startswith(parameters["kvEventsConfig"]["topicFilter"])
        assert config["topic"].endswith(f"@{case.spec['model']}")
        block = parameters["tokenProcessorConfig"]["blockSizeTokens"]
        assert flag(role.argv, "--block-size") == str(block)
    tokenizer = case.values["router"]["tokenizer"]
    assert (tokenizer["enabled"], tokenizer["modelName"]) == (True, case.spec["model"])


@every_case
def test_the_router_subscribes_to_every_engine_that_publishes(case: Case) -> None:
    if case.spec["routing"] != "precise":
        return
    (producer,) = [item for item in case.config["plugins"] if item["type"] == "precise-prefix-cache-producer"]
    discovery = producer["parameters"]["kvEventsConfig"]["podDiscoveryConfig"]
    # The plugin's own default selects a label of the text-only guides (router-plugin-parameters.csv,
    # kvEventsConfig.podDiscoveryConfig.podLabelSelector); later mains subscribe to nobody without it.
    selector = discovery.get("podLabelSelector", "llm-d.ai/inference-serving=true")
    for role in case.roles.values():
        if role.name != "encode":
            assert label_selector(selector, role.labels), f"{role.name}: {selector}"


def label_selector(text: str, labels: Mapping[str, str]) -> bool:
    """Whether a selector written as text (``a=b,c in (d,e)``) takes these labels."""
    for term in re.findall(r"[^,(]+(?:\([^)]*\))?", text):
        key, within = (
            re.fullmatch(r"\s*(\S+)\s+in\s+\(([^)]*)\)\s*", term).groups() if " in " in term else term.split("=", 1)
        )
        if labels.get(key.strip()) not in [value.strip(" =") for value in within.split(",")]:
            return False
    return True


@every_case
def test_pod_monitors_select_each_role_once_and_scrape_a_port_that_exists(case: Case) -> None:
    monitors = case.of_kind("PodMonitor")
    if not case.spec["monitoring"]:
        assert monitors == []
        return
    taken: list[str] = []
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        chosen = [
            role for role in case.roles.values() if selects(monitor["spec"]["selector"]["matchLabels"], role.labels)
        ]
        taken += [role.name for role in chosen]
        for role in chosen:
            assert endpoint["port"] in [port["name"] for port in role.engine["ports"]]
            # With a sidecar in the pod, the engine must be scraped and not the proxy.
            assert ports(role)[endpoint["port"]] == int(flag(role.argv, "--port") or 8000)
    assert taken == list(case.roles)


@every_case
def test_headless_services_carry_the_name_that_stateful_pods_are_reached_by(case: Case) -> None:
    services = {item["metadata"]["name"]: item for item in case.of_kind("Service")}
    for workload in case.of_kind("StatefulSet"):
        service = services.pop(workload["spec"]["serviceName"])
        assert service["spec"]["clusterIP"] == "None"
        (role,) = [role for role in case.roles.values() if role.workload is workload]
        assert [other.name for other in case.roles.values() if selects(service["spec"]["selector"], other.labels)] == [
            role.name
        ]
        (port,) = service["spec"]["ports"]
        assert port["targetPort"] in ports(role)
        addresses = [
            f"http://{workload['metadata']['name']}-{n}.{service['metadata']['name']}:{port['port']}"
            for n in range(role.replicas)
        ]
        argv = case.roles["decode"].argv
        start = argv.index("--encoder-urls") + 1
        assert argv[start : start + role.replicas] == addresses
        assert argv[start + role.replicas].startswith("--")
    assert services == {}


@every_case
def test_a_service_account_is_rendered_unless_it_is_the_person_s_own(case: Case) -> None:
    rendered = [item["metadata"]["name"] for item in case.of_kind("ServiceAccount")]
    used = {role.pod["serviceAccountName"] for role in case.roles.values()}
    own = {
        case.said[name]["serviceAccountName"] for name in case.roles if "serviceAccountName" in case.said.get(name, {})
    }
    assert set(rendered) == used - own
    assert len(rendered) == len(set(rendered))


@every_case
def test_the_secret_is_referred_to_and_never_rendered(case: Case) -> None:
    assert case.of_kind("Secret") == []
    for role in case.roles.values():
        reference = role.env["HF_TOKEN"]["secretKeyRef"]
        assert reference == case.spec["hfSecret"]


@every_case
def test_names_are_the_length_and_syntax_that_kubernetes_takes(case: Case) -> None:
    for item in case.objects.values():
        assert DNS_LABEL.fullmatch(item["metadata"]["name"]), item["metadata"]["name"]
    for workload in case.of_kind("DisaggregatedSet"):
        for role in workload["spec"]["roles"]:
            assert len(workload["metadata"]["name"]) + len(role["name"]) <= SET_NAME_LIMIT
    seen = [(item["kind"], item["metadata"]["name"]) for item in case.objects.values()]
    assert len(set(seen)) == len(seen)


def _label_maps(tree: Any) -> Iterator[Mapping[str, str]]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key in ("labels", "matchLabels", "nodeSelector") or (key == "selector" and tree.get("clusterIP")):
                yield value
            yield from _label_maps(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from _label_maps(item)


@every_case
def test_labels_obey_kubernetes_syntax(case: Case) -> None:
    trees = [*case.objects.values(), case.values]
    pairs = [pair for tree in trees for labels in _label_maps(tree) for pair in labels.items()]
    assert pairs
    wrong = [
        f"{k}={v}"
        for k, v in pairs
        if not LABEL_KEY.fullmatch(k) or not isinstance(v, str) or not LABEL_VALUE.fullmatch(v)
    ]
    assert wrong == []


@every_case
def test_each_kustomization_lists_its_files_once_and_sets_the_one_namespace(case: Case) -> None:
    # No object names a namespace: kustomize sets it, so that a person's own kustomization can set another.
    for path, item in case.objects.items():
        assert "namespace" not in item["metadata"], path
    for directory, content in case.kustomizations.items():
        files = [path.partition("/")[2] for path in case.objects if path.startswith(f"{directory}/")]
        assert content["resources"] == files
        assert content["namespace"] == case.spec["namespace"]
    directories = {path.partition("/")[0] for path in case.objects}
    assert set(case.kustomizations) == directories


@every_case
def test_the_helm_release_and_the_route_name_the_same_gateway(case: Case) -> None:
    gateways = case.of_kind("Gateway")
    if case.spec["mode"] == "standalone":
        assert gateways == []
        assert "httpRoute" not in case.values
        assert "provider" not in case.values
        return
    route = case.values["httpRoute"]
    assert route["create"] is True
    assert [item["metadata"]["name"] for item in gateways] in ([], [route["inferenceGatewayName"]])
    # Class none attaches to a Gateway that already stands.
    assert bool(gateways) == (case.spec["gateway"]["gatewayClass"] != "none")


@every_case
def test_the_config_file_that_the_picker_reads_is_the_one_rendered(case: Case) -> None:
    epp = case.values["router"]["epp"]
    assert list(epp["pluginsCustomConfig"]) == [epp["pluginsConfigFile"]]
    assert isinstance(epp["pluginsCustomConfig"][epp["pluginsConfigFile"]], str)


@every_case
def test_the_estimator_of_the_router_is_the_one_of_the_spec(case: Case) -> None:
    (producer,) = [item for item in case.config["plugins"] if item["type"] == "token-producer"] or [{}]
    estimate = producer.get("parameters", {}).get("estimate")
    assert estimate == case.spec.get("estimator")
