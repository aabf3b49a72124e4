"""The namespace, the Secrets that pods refer to, and the model's files."""

from __future__ import annotations

from collections.abc import Iterator

from mmdeploy.preflight.check import Check
from mmdeploy.preflight.facts import listed
from mmdeploy.preflight.secrets import referred
from mmdeploy.preflight.subject import Subject

CATEGORY = "namespace"
MODEL = "model"


def checks(subject: Subject) -> Iterator[Check]:
    """The namespace, then one check a Secret."""
    yield _namespace(subject)
    for name, keys in referred(subject.intended).items():
        yield _secret(subject, name, sorted(keys))


def _namespace(subject: Subject) -> Check:
    name = f"namespace {subject.namespace} exists"
    seen = subject.seen.namespace
    if seen.value is not None:
        if (seen.value.get("status") or {}).get("phase") == "Terminating":
            hint = "wait until it is gone, or choose another (--set namespace=…)"
            return Check(CATEGORY, name, "error", "it is being deleted: nothing can be created in it", hint)
        return Check(CATEGORY, name, "ok")
    if not seen.absent:
        return Check(CATEGORY, name, "warning", seen.why, "an administrator may let you read it")
    if "namespace" in subject.options.creates:
        return Check(CATEGORY, name, "ok", "not yet: will be created by apply")
    hint = "mmdeploy apply creates it (check --pre looks at what else it needs), or an administrator does"
    return Check(CATEGORY, name, "error", "it does not exist", hint, (f"kubectl create namespace {subject.namespace}",))


def _secret(subject: Subject, name: str, keys: list[str]) -> Check:
    wanted = f"Secret {name} has {listed([f'key {key}' for key in keys])}" if keys else f"Secret {name} exists"
    seen = subject.seen.secrets[name]
    if seen.value is not None:
        lacking = [key for key in keys if key not in seen.value]
        if not lacking:
            return Check(CATEGORY, wanted, "ok")
        detail = f"it has {listed(sorted(seen.value)) or 'no keys'}, not {listed(lacking)}: every pod would end in "
        hint = _command(subject, name, lacking[0])
        if seen.value and _is_token(subject, name):
            hint = f"render with --set hfSecret.key={min(seen.value)} if that is the token, or: {hint}"
        return Check(CATEGORY, wanted, "error", f"{detail}CreateContainerConfigError", hint)
    if seen.absent or not subject.namespace_exists:
        if "secret" in subject.options.creates and _is_token(subject, name):
            return Check(CATEGORY, wanted, "ok", "not yet: will be created by apply")
        hint = _command(subject, name, keys[0]) if keys else f"create it in {subject.namespace}"
        return Check(CATEGORY, wanted, "error", "it does not exist", hint)
    return Check(CATEGORY, wanted, "warning", f"{seen.why}, so nobody knows whether it is there",
                 f"have somebody look: kubectl describe secret {name} --namespace {subject.namespace}")  # fmt: skip


def _is_token(subject: Subject, name: str) -> bool:
    return name == (subject.intended.spec.get("hfSecret") or {}).get("name")


def _command(subject: Subject, name: str, key: str) -> str:
    written = "mmdeploy apply with --hf-token-from env:HF_TOKEN writes it; or: " if _is_token(subject, name) else ""
    return (
        f'{written}printf %s "$HF_TOKEN" | kubectl create secret generic {name} --namespace {subject.namespace} '
        f"--from-file={key}=/dev/stdin"
    )


def model(subject: Subject) -> Iterator[Check]:
    """Whether the model's files may be fetched. Not asked for a model from a path."""
    if not subject.options.hub:
        return
    served = str(subject.intended.spec.get("model", ""))
    name, seen = f"the files of {served} may be fetched", subject.seen.hub
    if seen.value is None:
        if seen.problem is not None:
            yield Check(MODEL, name, "skipped", seen.why)
    elif seen.value < 400:
        yield Check(MODEL, name, "ok")
    elif seen.value in (401, 403):
        yield _gated(subject, name, served)
    elif seen.value == 404:
        yield Check(MODEL, name, "warning", "the hub has no such model", "it may be a name of your own, or misspelt")
    else:
        yield Check(MODEL, name, "skipped", f"the hub answers {seen.value}")


def _gated(subject: Subject, name: str, served: str) -> Check:
    if subject.options.token:
        return Check(
            MODEL, name, "error", "the hub refuses the token: it is not valid, or its account has not accepted the "
            "model's licence", f"accept it on the model's page ({served}), as the account that the token is of",
        )  # fmt: skip
    return Check(
        MODEL, name, "warning", "the hub gives them only to accounts that accepted the model's licence, and no token "
        "was tried", "--hf-token-from env:HF_TOKEN tries one",
    )  # fmt: skip


__all__ = ["checks", "model"]
