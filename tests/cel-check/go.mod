module coxswain.dev/cel-check

go 1.26.0

// CEL's conformance tests, as data (Apache-2.0).
require cel.dev/expr v0.25.2
