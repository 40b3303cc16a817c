//go:build !standard

package main

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// scaleIntOrString reads the text of an IntOrString and a total.
func scaleIntOrString(text string) (any, error) {
	written, number := first(text)
	total, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		return nil, err
	}
	value := intstr.FromString(written)
	up, err := intstr.GetScaledValueFromIntOrPercent(&value, int(total), true)
	if err != nil {
		return nil, err
	}
	down, err := intstr.GetScaledValueFromIntOrPercent(&value, int(total), false)
	if err != nil {
		return nil, err
	}
	return map[string]any{"up": up, "down": down}, nil
}
