//go:build !standard

package main

import (
	"errors"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// endless matches exponents for which the library computes powers of ten for minutes.
var endless = regexp.MustCompile(`[eE][-+]?0*[1-9][0-9]{3}`)

// readQuantities reads one quantity, or two that are compared, added and subtracted.
func readQuantities(text string) (any, error) {
	if endless.MatchString(text) {
		return nil, errors.New("the exponent has more than three digits")
	}
	one, other := first(text)
	left, err := resource.ParseQuantity(one)
	if err != nil {
		return nil, err
	}
	read := quantity(left)
	if other == "" {
		return read, nil
	}
	right, err := resource.ParseQuantity(other)
	if err != nil {
		return nil, err
	}
	sum, rest := left.DeepCopy(), left.DeepCopy()
	sum.Add(right)
	rest.Sub(right)
	read["order"] = left.Cmp(right)
	read["sum"] = sum.String()
	read["difference"] = rest.String()
	return read, nil
}

func quantity(amount resource.Quantity) map[string]any {
	// Several methods cache what they compute, so each gets a copy.
	milli, whole, rounded := amount.DeepCopy(), amount.DeepCopy(), amount.DeepCopy()
	rounded.RoundUp(0)
	return map[string]any{
		"canonical": canonical(amount),
		"milli":     milli.MilliValue(),
		"value":     whole.Value(),
		"rounded":   canonical(rounded),
		"sign":      amount.Sign(),
	}
}

// canonical does not return the text that an unchanged quantity was read from.
func canonical(amount resource.Quantity) string {
	copied := amount.DeepCopy()
	number, suffix := copied.CanonicalizeBytes(nil)
	return string(number) + string(suffix)
}
