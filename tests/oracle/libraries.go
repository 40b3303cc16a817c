//go:build !standard

package main

func init() {
	questions = map[string]question{
		"address":        readAddress,
		"duration":       readDuration,
		"flag":           readFlag,
		"int-or-string":  scaleIntOrString,
		"json":           readJSON,
		"label-selector": compileLabelSelector,
		"name":           judgeName,
		"object":         readObject,
		"object-json":    readObjectJSON,
		"quantity":       readQuantities,
		"schedule":       readSchedule,
		"selector":       parseSelector,
		"server":         readServer,
		"strict-address": readStrictAddress,
		"time":           readTime,
	}
}
