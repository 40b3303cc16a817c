//go:build !standard

package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
)

// parseSelector reads the text of a selector, and sets of labels such as `a=1;b=2` to match.
func parseSelector(text string) (any, error) {
	written, sets := first(text)
	selector, err := labels.Parse(written)
	if err != nil {
		return nil, err
	}
	return show(selector, sets), nil
}

// compileLabelSelector reads requirements, then an empty part, then sets of labels. A requirement is `= KEY VALUE`, or an operator, a
// key and values, with spaces between them. A separator follows each requirement.
func compileLabelSelector(text string) (any, error) {
	selector := metav1.LabelSelector{MatchLabels: map[string]string{}}
	rest := text
	for rest != "" {
		var part string
		if part, rest = first(rest); part == "" {
			break
		}
		words := strings.Split(part, " ")
		if words[0] == "=" {
			if len(words) != 3 {
				return nil, fmt.Errorf("malformed question: %q", part)
			}
			selector.MatchLabels[words[1]] = words[2]
			continue
		}
		if len(words) < 2 {
			return nil, fmt.Errorf("malformed question: %q", part)
		}
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key:      words[1],
			Operator: metav1.LabelSelectorOperator(words[0]),
			Values:   words[2:],
		})
	}
	compiled, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return nil, err
	}
	return show(compiled, rest), nil
}

// operators maps further names of an operator to one name.
var operators = map[selection.Operator]selection.Operator{
	selection.Equals:       selection.In,
	selection.DoubleEquals: selection.In,
	selection.NotEquals:    selection.NotIn,
}

func show(selector labels.Selector, sets string) map[string]any {
	shown := []string{}
	requirements, _ := selector.Requirements()
	for _, requirement := range requirements {
		operator := requirement.Operator()
		if other, isOther := operators[operator]; isOther {
			operator = other
		}
		values := []string{}
		for _, value := range slices.Sorted(maps.Keys(requirement.Values())) {
			// The values of `>` and `<` are numbers: +1 is 1.
			if number, err := strconv.ParseInt(value, 10, 64); err == nil && isComparison(operator) {
				value = strconv.FormatInt(number, 10)
			}
			values = append(values, value)
		}
		shown = append(shown, fmt.Sprintf("%s %s %s", requirement.Key(), operator, strings.Join(values, " ")))
	}
	slices.Sort(shown)
	matches := []bool{}
	for _, set := range strings.Split(sets, separator) {
		held := labels.Set{}
		for _, label := range strings.Split(set, ";") {
			if key, value, isPair := strings.Cut(label, "="); isPair {
				held[key] = value
			}
		}
		matches = append(matches, selector.Matches(held))
	}
	return map[string]any{"requirements": shown, "matches": matches}
}

func isComparison(operator selection.Operator) bool {
	return operator == selection.GreaterThan || operator == selection.LessThan
}

// judgeName reports the kinds of names that a text is valid for.
func judgeName(text string) (any, error) {
	return map[string]any{
		"labelKey":   len(validation.IsQualifiedName(text)) == 0,
		"labelValue": len(validation.IsValidLabelValue(text)) == 0,
		"subdomain":  len(validation.IsDNS1123Subdomain(text)) == 0,
		"label":      len(validation.IsDNS1123Label(text)) == 0,
	}, nil
}
