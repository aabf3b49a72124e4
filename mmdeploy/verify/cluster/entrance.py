"""Where requests come in: the router's Service, the Gateway in front of a pool, or an address that somebody said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mmdeploy.verify.cluster.looking import Object, Seen, facts_of, labels
from mmdeploy.verify.cluster.places import service_url
from mmdeploy.verify.cluster.routers import Router
from mmdeploy.verify.evidence import Observation
from mmdeploy.verify.targets import Endpoint

if TYPE_CHECKING:
    from mmdeploy.catalog import Catalog


class Entrance:
    """The ways in of one deployment."""

    def __init__(self, seen: Seen, router: Router, catalog: Catalog, said: str | None = None) -> None:
        """``said`` is an address that takes the place of the Service."""
        self._seen, self._router, self._catalog, self._said = seen, router, catalog, said
        self._facts = facts_of(catalog)
        self.remarks: list[Observation] = []

    @cached_property
    def routes(self) -> Sequence[Object]:
        """HTTPRoutes that lead to the pool."""
        pool = self._router.pool
        if pool is None:
            return ()
        name = pool["metadata"]["name"]
        return [route for route in self._seen.routes if name in _backends(route)]

    @property
    def request_timeout(self) -> str | None:
        """The shortest request timeout of the routes; 0 is none, and None where no rule says one."""
        from mmdeploy.lint.gateways import seconds

        rules = [rule for route in self.routes for rule in route["spec"].get("rules") or ()]
        said = [str(rule["timeouts"]["request"]) for rule in rules if (rule.get("timeouts") or {}).get("request")]
        return min(said, key=lambda text: seconds(text) or float("inf"), default=None)

    def standing(self) -> Iterator[tuple[str, bool | None]]:
        """What controllers say of each route that leads to the pool, and of the pool behind it: a sentence, and whether
        it is resolved; None where nobody says anything."""
        behind = [("InferencePool", self._router.pool)] if self.routes and self._router.pool is not None else []
        for kind, item in [*(("HTTPRoute", route) for route in self.routes), *behind]:
            name = f"{kind} {item['metadata']['name']}"
            parents = (item.get("status") or {}).get("parents") or ()
            if not parents:
                yield f"no controller has said anything of {name}", None
            for parent in parents:
                yield self._under(name, parent)

    def _under(self, name: str, parent: Mapping[str, Any]) -> tuple[str, bool | None]:
        """What is said for one Gateway."""
        wanted = self._catalog.table("startup")["gatewayConditions"]["HTTPRoute"]
        said = {each.get("type"): each for each in parent.get("conditions") or ()}
        of = f"{name} under {(parent.get('parentRef') or {}).get('name', 'its Gateway')}"
        good = [each for each in wanted if said.get(each, {}).get("status") == "True"]
        wrong = [said[each] for each in wanted if said.get(each, {}).get("status") == "False"]
        if wrong:
            why = (f"not {each['type']} ({each.get('reason', '')}: {each.get('message', '')})" for each in wrong)
            return f"{of} is {' and '.join(why)}", False
        return f"{of} is {' and '.join(good) or 'not looked at yet'}", True if good else None

    @cached_property
    def gateway(self) -> Endpoint | None:
        """The Gateway, where there is one that can be addressed."""
        if self._said is not None:
            return None
        for route in self.routes:
            for parent in route["spec"].get("parentRefs") or ():
                namespace = parent.get("namespace") or route["metadata"]["namespace"]
                url = self._of_gateway(str(parent["name"]), str(namespace))
                if url:
                    return Endpoint("gateway", url)
        if self.routes:
            self._remark("gateway", "the Gateway has neither a Service here nor an address; --via URL names one")
        return None

    @cached_property
    def entry(self) -> Endpoint:
        """What an ordinary client would call: in gateway mode there is nothing but the Gateway."""
        if self._said is not None:
            return Endpoint("entry", self._said.rstrip("/"))
        port = self._entry_port()
        if port is None and self.gateway is not None:
            return Endpoint("entry", self.gateway.url)
        if port is None:
            port = self._catalog.ports["client"]
            why = self._seen.missing.get("services")
            said = f"taken for {port}" + (f", with {why}" if why else "")
            self._remark("entry", f"the port of Service {self._router.service_name} is {said}")
        return Endpoint("entry", service_url(self._seen.namespace, self._router.service_name, port))

    def _entry_port(self) -> int | None:
        service = self._router.service
        ports = (service["spec"].get("ports") or ()) if service else ()
        by_name = {port.get("name"): int(port["port"]) for port in ports}
        if self._facts["router"]["entryPort"] in by_name:
            return by_name[self._facts["router"]["entryPort"]]
        wanted = (self._catalog.ports["proxy"], str(self._catalog.ports["proxy"]), self._facts["router"]["entryPort"])
        return next((int(port["port"]) for port in ports if port.get("targetPort") in wanted), None)

    def _of_gateway(self, name: str, namespace: str) -> str | None:
        """The Service that its controller made for it; else the address in its status."""
        key = self._facts["gateway"]["serviceLabel"]
        gateway = next((item for item in self._seen.gateways if item["metadata"]["name"] == name), None)
        port = _listener(gateway) if gateway else None
        if namespace == self._seen.namespace:
            for service in self._seen.services:
                if labels(service).get(key) == name or service["metadata"]["name"] == name:
                    numbers = [int(each["port"]) for each in service["spec"].get("ports") or ()]
                    chosen = port if port in numbers else (numbers[0] if numbers else None)
                    if chosen is not None:
                        return service_url(namespace, service["metadata"]["name"], chosen)
        for address in ((gateway or {}).get("status") or {}).get("addresses") or ():
            host = str(address["value"])
            return f"http://{f'[{host}]' if ':' in host else host}:{port or self._catalog.ports['client']}"
        return None

    def _remark(self, about: str, detail: str) -> None:
        self.remarks.append(Observation("cluster", about, detail))


def _backends(route: Object) -> set[str]:
    rules: Sequence[Mapping[str, Any]] = route["spec"].get("rules") or ()
    return {
        str(backend["name"])
        for rule in rules
        for backend in rule.get("backendRefs") or ()
        if backend.get("kind") == "InferencePool"
    }


def _listener(gateway: Object) -> int | None:
    """The port of the first plain listener."""
    for listener in gateway["spec"].get("listeners") or ():
        if listener.get("protocol") == "HTTP":
            return int(listener["port"])
    return None
