//go:build !standard

package main

func init() {
	questions = map[string]question{
		"address":        readAddress,
		"duration":       readDuration,
		"flag":           readFlag,
		"int-or-string":  scaleIntOrString,
		"label-selector": compileLabelSelector,
		"name":           judgeName,
		"quantity":       readQuantities,
		"schedule":       readSchedule,
		"selector":       parseSelector,
		"strict-address": readStrictAddress,
		"time":           readTime,
	}
}
