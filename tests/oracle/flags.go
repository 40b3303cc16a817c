//go:build !standard

package main

import (
	"fmt"
	"io"
	"math"
	"net"
	"strings"

	"github.com/spf13/pflag"
)

// readFlag reads the type of a flag, and values that the flag is given one after the other.
func readFlag(text string) (any, error) {
	kind, values := first(text)
	flags := pflag.NewFlagSet("oracle", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	value, err := define(flags, kind)
	if err != nil {
		return nil, err
	}
	for _, given := range strings.Split(values, separator) {
		if err := flags.Set("flag", given); err != nil {
			return nil, err
		}
	}
	return value(), nil
}

// define defines the flag, and returns a function that returns its value.
func define(flags *pflag.FlagSet, kind string) (func() any, error) {
	const name = "flag"
	switch kind {
	case "bool":
		value := flags.Bool(name, false, "")
		return func() any { return *value }, nil
	case "int":
		value := flags.Int(name, 0, "")
		return func() any { return *value }, nil
	case "int32":
		value := flags.Int32(name, 0, "")
		return func() any { return *value }, nil
	case "float32":
		value := flags.Float32(name, 0, "")
		return func() any { return math.Float32bits(*value) }, nil
	case "duration":
		value := flags.Duration(name, 0, "")
		return func() any { return value.Nanoseconds() }, nil
	case "ip":
		value := flags.IP(name, net.IPv4zero, "")
		return func() any { return value.String() }, nil
	case "strings":
		value := flags.StringSlice(name, []string{"default"}, "")
		return func() any { return list(*value) }, nil
	case "int32Slice":
		value := flags.Int32Slice(name, []int32{7}, "")
		return func() any { return append([]int32{}, *value...) }, nil
	case "stringToString":
		value := flags.StringToString(name, map[string]string{"default": ""}, "")
		return func() any { return *value }, nil
	default:
		return nil, fmt.Errorf("unknown type of flag %q", kind)
	}
}
