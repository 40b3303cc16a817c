package main

import (
	"fmt"
	"strings"
)

// question returns the reading of a text, or an error if the library refuses the text.
type question func(text string) (any, error)

// questions holds the questions by their names. Texts of several parts have a separator between the parts.
var questions = map[string]question{
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
	"time":           readTime,
}

// separator stands between the parts of a text.
const separator = "\x1f"

// reading is the answer to a question. Only one of the fields is set.
type reading struct {
	Reads   any    `json:"reads,omitempty"`
	Refuses string `json:"refuses,omitempty"`
}

// ask turns a panic of a library into a refusal.
func ask(question question, text string) (answer reading) {
	defer func() {
		if cause := recover(); cause != nil {
			answer = reading{Refuses: fmt.Sprintf("panic: %v", cause)}
		}
	}()
	reads, err := question(text)
	if err != nil {
		return reading{Refuses: "error: " + err.Error()}
	}
	return reading{Reads: reads}
}

// first returns the part of a text before the first separator, and the part after it.
func first(text string) (string, string) {
	before, after, _ := strings.Cut(text, separator)
	return before, after
}
