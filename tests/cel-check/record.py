#!/usr/bin/env python3
"""Records what the Go manager warns of expressions, for the tests of crates/cel-check.

    controlplane up --dir DIR --nodes 0 --kwok=false --scheduler=false --with-go-manager \\
        --go-manager-arg controllers=validatingadmissionpolicy-status-controller
    tests/cel-check/record.py DIR/admin.kubeconfig NAME...

reads crates/cel-check/tests/data/NAME.cel, makes ValidatingAdmissionPolicies of it, and writes what came of them to
NAME.jsonl beside it: for each expression the warning of status.typeChecking, nothing, or why the API server refused it. With
`--schemas` it also writes the OpenAPI documents that the tests read, without their descriptions.

A .cel file is made of sections. Lines that begin with `@` open one and say what it is about:

    @resources apps/v1/deployments /v1/pods     what matchConstraints names
    @params /v1/configmaps                      the policy's paramKind, or none
    @variable name = expression                 in order, any number
    @message                                    what follows are message expressions

Every other line that is not empty and does not begin with `#` is an expression; one that begins with a double quote is JSON.
"""

import base64
import json
import re
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "crates/cel-check/tests/data"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PER_POLICY = 40
DIGITS = re.compile(r"(?<=[A-Za-z])[0-9]{3,9}(?=[.,)'\n]|$)")


class Server:
    def __init__(self, kubeconfig):
        config = json.loads(Path(kubeconfig).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
        self.server, self.opener = cluster["server"], urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def call(self, method, path, body=None, content="application/json"):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, {"Content-Type": content}, method=method)
        try:
            with self.opener.open(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)


def sections(text):
    found, fresh = [], False
    for line in text.splitlines():
        if line.startswith("@"):
            word, _, rest = line[1:].partition(" ")
            if not fresh:
                found.append({"resources": [], "params": None, "variables": [], "message": False, "expressions": []})
                fresh = True
            section = found[-1]
            if word == "resources":
                section["resources"] = rest.split()
            elif word == "params":
                section["params"] = rest.strip()
            elif word == "variable":
                name, _, expression = rest.partition(" = ")
                section["variables"].append({"name": name.strip(), "expression": expression.strip()})
            elif word == "message":
                section["message"] = True
        elif line.strip() and not line.startswith("#"):
            fresh = False
            found[-1]["expressions"].append(json.loads(line) if line.startswith('"') else line)
    return found


def group_version(resource):
    group, version, name = resource.split("/")
    return group, version, name


def discover(server, resource):
    """The kinds that the manager takes a resource for: the core group stands for every group."""
    group, version, name = group_version(resource)
    groups = [group]
    if not group:
        groups += [entry["name"] for entry in server.call("GET", "/apis")["groups"]]
    kinds = []
    for group in groups:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        found = server.call("GET", path).get("resources", [])
        kinds += [[group, version, entry["kind"]] for entry in found if entry["name"] == name]
    return kinds


def policy(name, section, expressions):
    rules = []
    for resource in section["resources"]:
        group, version, plural = group_version(resource)
        rules.append({"apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": ["*"]})
    spec = {"failurePolicy": "Ignore", "matchConstraints": {"resourceRules": rules}, "variables": section["variables"]}
    if section["params"]:
        group, version, plural = group_version(section["params"])
        spec["paramKind"] = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": section["paramsKind"][2]}
    if section["message"]:
        spec["validations"] = [{"expression": "true", "messageExpression": text} for text in expressions]
    else:
        spec["validations"] = [{"expression": text} for text in expressions]
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def create(server, name, section, indices):
    """Creates a policy of what the server takes; says why it refused the others."""
    refused = {}
    while indices:
        answer = server.call("POST", POLICIES, policy(name, section, [section["expressions"][i] for i in indices]))
        if answer.get("kind") != "Status":
            return indices, refused
        bad = {}
        for cause in (answer.get("details") or {}).get("causes", []):
            found = re.match(r"spec\.validations\[(\d+)\]", cause["field"])
            if found:
                bad.setdefault(int(found[1]), cause["message"])
        if not bad:
            raise SystemExit(f"{name}: {json.dumps(answer)}")
        for at, message in bad.items():
            refused[indices[at]] = message
        indices = [index for at, index in enumerate(indices) if at not in bad]
    return indices, refused


def finish(server, name):
    for _ in range(600):
        found = server.call("GET", f"{POLICIES}/{name}")
        status = found.get("status", {})
        if status.get("observedGeneration") == found["metadata"]["generation"]:
            server.call("DELETE", f"{POLICIES}/{name}")
            return status["typeChecking"].get("expressionWarnings", [])
        time.sleep(0.1)
    raise SystemExit(f"{name}: the manager does not check it")


def record(server, name):
    found = sections((DATA / f"{name}.cel").read_text())
    policies, lines = [], []
    for number, section in enumerate(found):
        section["kinds"] = sorted(kind for resource in section["resources"] for kind in discover(server, resource))
        section["paramsKind"] = discover(server, section["params"])[0] if section["params"] else None
        section["outcomes"] = [None] * len(section["expressions"])
        for start in range(0, len(section["expressions"]), PER_POLICY):
            indices = list(range(start, min(start + PER_POLICY, len(section["expressions"]))))
            called = f"cel-{name}-{number}-{start}"
            server.call("DELETE", f"{POLICIES}/{called}")
            indices, refused = create(server, called, section, indices)
            for index, message in refused.items():
                section["outcomes"][index] = {"refused": message}
            if indices:
                policies.append((called, section, indices))
    for called, section, indices in policies:
        for warning in finish(server, called):
            at = int(re.match(r"spec\.validations\[(\d+)\]", warning["fieldRef"])[1])
            section["outcomes"][indices[at]] = {"warning": DIGITS.sub("", warning["warning"])}
    for section in found:
        keep = {key: section[key] for key in ("kinds", "paramsKind", "variables", "message")}
        lines.append(json.dumps(keep))
        lines += [json.dumps([text, outcome]) for text, outcome in zip(section["expressions"], section["outcomes"])]
    (DATA / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    outcomes = [outcome for section in found for outcome in section["outcomes"]]
    refused = sum(1 for outcome in outcomes if outcome and "refused" in outcome)
    warned = sum(1 for outcome in outcomes if outcome and "warning" in outcome)
    print(f"{name}: {len(outcomes)} expressions, {refused} refused, {warned} with a warning", file=sys.stderr)


def lean(value):
    if isinstance(value, dict):
        return {key: lean(item) for key, item in value.items() if not (key == "description" and isinstance(item, str))}
    return [lean(item) for item in value] if isinstance(value, list) else value


def schemas(server):
    paths = set()
    for file in DATA.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            section = json.loads(line)
            if isinstance(section, dict):
                kinds = section["kinds"] + [section["paramsKind"]] * bool(section["paramsKind"])
                paths |= {f"apis/{group}/{version}" if group else f"api/{version}" for group, version, _ in kinds}
    for path in sorted(paths):
        document = lean(server.call("GET", f"/openapi/v3/{path}"))
        document.pop("paths", None)
        text = json.dumps(document, separators=(",", ":"), sort_keys=True)
        (DATA / f"openapi/{path.replace('/', '_')}.json").write_text(text + "\n")


def main():
    server = Server(sys.argv[1])
    for crd in json.loads((DATA / "crds.json").read_text()):
        answer = server.call("POST", CRDS, crd)
        if answer.get("kind") == "Status" and answer.get("reason") != "AlreadyExists":
            raise SystemExit(json.dumps(answer))
    time.sleep(3)
    for name in sys.argv[2:]:
        if name == "--schemas":
            (DATA / "openapi").mkdir(exist_ok=True)
            schemas(server)
        else:
            record(server, name)


main()
