//go:build !standard

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// readJSON reads any JSON, with the standard library and with that of Kubernetes. The latter keeps integers.
func readJSON(text string) (any, error) {
	if depth(text) > deepest {
		return nil, errors.New("too deep for an answer")
	}
	var standard, kubernetes any
	if err := json.Unmarshal([]byte(text), &standard); err != nil {
		return nil, err
	}
	if err := utiljson.Unmarshal([]byte(text), &kubernetes); err != nil {
		return nil, fmt.Errorf("refused by the library of Kubernetes alone: %w", err)
	}
	return map[string]any{"standard": typed(standard), "kubernetes": typed(kubernetes)}, nil
}

// deepest bounds the depth of JSON, so that an answer is read.
const deepest = 100

// depth counts brackets, those in texts too.
func depth(text string) int {
	open, most := 0, 0
	for _, char := range text {
		switch char {
		case '[', '{':
			open++
		case ']', '}':
			open = max(open-1, 0)
		}
		most = max(most, open)
	}
	return most
}

// typed returns a value of JSON in which texts and numbers show their types.
func typed(value any) any {
	switch value := value.(type) {
	case string:
		return "text " + value
	case float64:
		return "float " + strconv.FormatUint(math.Float64bits(value), 16)
	case int64:
		return "int " + strconv.FormatInt(value, 10)
	case []any:
		items := []any{}
		for _, item := range value {
			items = append(items, typed(item))
		}
		return items
	case map[string]any:
		members := map[string]any{}
		for name, member := range value {
			members[name] = typed(member)
		}
		return members
	default:
		return value
	}
}
