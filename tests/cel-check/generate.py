#!/usr/bin/env python3
"""Writes crates/cel-check/tests/data/generated.cel: expressions by a grammar, over the types of real kinds.

    tests/cel-check/generate.py [SEED]

The same seed gives the same expressions. Most are what the API server takes, as it knows no types of objects; what the manager
says of them is recorded by record.py. It reads the OpenAPI documents beside the recordings.
"""

import json
import random
import sys
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "crates/cel-check/tests/data"
KINDS = [
    ("api_v1", "io.k8s.api.core.v1.Pod", "/v1/pods"),
    ("api_v1", "io.k8s.api.core.v1.Service", "/v1/services"),
    ("api_v1", "io.k8s.api.core.v1.ConfigMap", "/v1/configmaps"),
    ("api_v1", "io.k8s.api.core.v1.Node", "/v1/nodes"),
    ("apis_apps_v1", "io.k8s.api.apps.v1.Deployment", "apps/v1/deployments"),
    ("apis_apps_v1", "io.k8s.api.apps.v1.StatefulSet", "apps/v1/statefulsets"),
    ("apis_batch_v1", "io.k8s.api.batch.v1.Job", "batch/v1/jobs"),
    ("apis_autoscaling_v2", "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler", "autoscaling/v2/horizontalpodautoscalers"),
    ("apis_networking.k8s.io_v1", "io.k8s.api.networking.v1.Ingress", "networking.k8s.io/v1/ingresses"),
    (
        "apis_apiextensions.k8s.io_v1",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        "apiextensions.k8s.io/v1/customresourcedefinitions",
    ),
    ("apis_cel.example.com_v1", "com.example.cel.v1.Widget", "cel.example.com/v1/widgets"),
]
PER_KIND = 320
LITERALS = ["1", "'a'", "1.5", "2u", "true", "null", "b'x'", "duration('1s')", "[]", "{}", "['a']", "[1]", "{'a': 1}", "[1.5]"]
BINARY = ["==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "in"]
METHODS = [
    "size()", "contains('a')", "startsWith({})", "matches('a')", "lowerAscii()", "split(',')", "replace('a', {})", "join(',')",
    "sum()", "min()", "max()", "isSorted()", "indexOf({})", "slice(0, 1)", "distinct()", "reverse()", "sort()", "flatten()",
    "first()", "last()", "getHours()", "getFullYear('UTC')", "find('a')", "findAll('a')", "substring({})", "trim()", "charAt({})",
    "hasValue()", "orValue({})", "value()", "format([{}])", "unwrapOpt()", "getSeconds()",
]
FUNCTIONS = [
    "size({})", "string({})", "int({})", "double({})", "dyn({})", "type({})", "duration({})", "timestamp({})", "bytes({})", "uint({})",
    "sets.contains({}, {})", "sets.intersects({}, {})", "quantity({})", "url({})", "ip({})", "cidr({})", "semver({})", "isIP({})",
    "optional.of({})", "optional.none()", "lists.range({})", "strings.quote({})", "has({select})", "'%s'.format([{}, {}])",
    "'%d %s'.format([{}, {}])", "'%.2f'.format([{}])", "'%x %b'.format([{}, {}])", "isQuantity({})", "bool({})", "optional.ofNonZeroValue({})",
]


class Grammar:
    def __init__(self, schemas, root, dice):
        self.schemas, self.root, self.dice = schemas, root, dice
        self.names = []

    def resolve(self, schema):
        while True:
            reference = schema.get("$ref") or next((part.get("$ref") for part in schema.get("allOf", [])), None)
            if not reference:
                return schema
            schema = self.schemas[reference.rsplit("/", 1)[1]]

    def path(self):
        """A name, and fields of it: those that it has, mostly."""
        dice = self.dice
        if self.names and dice.random() < 0.6:
            text, schema = dice.choice(self.names)
        else:
            text, schema = dice.choice(["object", "object", "object", "oldObject"]), {"$ref": f"/{self.root}"}
        for _ in range(dice.randint(0 if self.names else 1, 6)):
            schema = self.resolve(schema)
            if dice.random() < 0.04:
                return f"{text}.{dice.choice(['nonsense', 'name', 'spec', 'foo'])}", {}
            if schema.get("properties"):
                names = [name for name in schema["properties"] if name.isidentifier()]
                if not names:
                    break
                field = dice.choice(["spec", "spec", "status", "metadata"] if text in ("object", "oldObject") else names)
                if field not in names:
                    field = dice.choice(names)
                text, schema = text + dice.choice(["."] * 24 + [".?"]) + field, schema["properties"][field]
            elif schema.get("type") == "array" and dice.random() < 0.6:
                text, schema = f"{text}[{dice.choice(['0'] * 9 + ['?0'])}]", schema.get("items", {})
            elif isinstance(schema.get("additionalProperties"), dict) and dice.random() < 0.7:
                text, schema = text + dice.choice([".foo"] * 5 + ["['a']"] * 4 + ["[?'a']"]), schema["additionalProperties"]
            else:
                break
        return text, schema

    def value(self, depth):
        dice = self.dice
        kind = dice.random()
        if depth <= 0 or kind < 0.5:
            return self.path()[0] if dice.random() < 0.9 else dice.choice(LITERALS)
        if kind < 0.6:
            return f"({self.value(depth - 1)} {dice.choice(BINARY[6:])} {self.value(depth - 1)})"
        if kind < 0.7:
            return f"{self.path()[0]}.{self.filled(dice.choice(METHODS), depth)}"
        if kind < 0.8:
            return self.filled(dice.choice(FUNCTIONS), depth)
        if kind < 0.9:
            return self.macro(depth)
        if kind < 0.93:
            return f"({self.truth(depth - 1)} ? {self.value(depth - 1)} : {self.value(depth - 1)})"
        if kind < 0.96:
            return f"[{self.path()[0]}, {self.path()[0]}]"
        if kind < 0.98:
            return f"{{'a': {self.path()[0]}, 'b': {self.path()[0]}}}"
        return dice.choice(["!", "-"]) + self.path()[0]

    def filled(self, text, depth):
        if "{select}" in text:
            path = self.path()[0]
            return f"has({path})" if "." in path and path[-1] not in ")]" and ".?" not in path else path
        while "{}" in text:
            text = text.replace("{}", self.value(depth - 1), 1)
        return text

    def macro(self, depth):
        dice = self.dice
        path, schema = self.path()
        schema = self.resolve(schema)
        element = schema.get("items") or schema.get("additionalProperties")
        element = element if isinstance(element, dict) else {}
        name = f"v{len(self.names)}"
        macro = dice.choice(
            ["all", "exists", "exists_one", "map", "filter", "map3", "all2", "exists2", "transformList", "transformMap"]
            + ["optMap", "optFlatMap", "sortBy", "transformMapEntry"]
        )
        two = macro in ("all2", "exists2", "transformList", "transformMap", "transformMapEntry")
        first = f"{name}k"
        self.names.append((name, element))
        if two:
            self.names.append((first, {}))
        truth = macro in ("all", "exists", "exists_one", "filter", "all2", "exists2") and dice.random() < 0.9
        body = self.truth(depth - 1) if truth else self.value(depth - 1)
        if macro == "map3":
            body = f"{self.truth(depth - 1)}, {body}"
        if macro == "transformMapEntry" and dice.random() < 0.8:
            body = f"{{{first}: {body}}}"
        del self.names[-2 if two else -1 :]
        variables = f"{first}, {name}" if two else name
        return f"{path}.{macro.rstrip('23')}({variables}, {body})"

    def truth(self, depth):
        dice = self.dice
        kind = dice.random()
        if depth > 0 and kind < 0.2:
            return f"{self.truth(depth - 1)} {dice.choice(['&&', '||'])} {self.truth(depth - 1)}"
        if depth > 0 and kind < 0.3:
            return self.macro(depth)
        sides = [self.value(depth - 1), self.path()[0]]
        dice.shuffle(sides)
        return f"{sides[0]} {dice.choice(BINARY[:6] + ['in'])} {sides[1]}"


def main():
    dice = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 36)
    lines = [f"# Written by tests/cel-check/{Path(__file__).name}."]
    for document, schema, resource in KINDS:
        schemas = json.loads((DATA / f"openapi/{document}.json").read_text())["components"]["schemas"]
        grammar = Grammar(schemas, schema, dice)
        lines += ["", f"@resources {resource}"]
        lines += [grammar.truth(dice.randint(1, 3)) for _ in range(PER_KIND)]
    (DATA / "generated.cel").write_text("\n".join(lines) + "\n")


main()
