//go:build !standard

package main

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func readDuration(text string) (any, error) {
	duration, err := time.ParseDuration(text)
	if err != nil {
		return nil, err
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	var ofObject metav1.Duration
	if err := json.Unmarshal(quoted, &ofObject); err != nil {
		return nil, err
	}
	return map[string]any{"nanoseconds": duration.Nanoseconds(), "text": ofObject.Duration.String()}, nil
}

// readTime reads a text as both types of times. A type that refuses the text is absent from the answer.
func readTime(text string) (any, error) {
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	var (
		seconds metav1.Time
		micro   metav1.MicroTime
	)
	errSeconds, errMicro := json.Unmarshal(quoted, &seconds), json.Unmarshal(quoted, &micro)
	if errSeconds != nil && errMicro != nil {
		return nil, errSeconds
	}
	read := map[string]any{}
	if errSeconds == nil {
		read["time"] = moment(seconds.Time, seconds)
	}
	if errMicro == nil {
		read["micro"] = moment(micro.Time, micro)
	}
	return read, nil
}

// moment returns a time, and the text that the type writes for it. The text is empty for years beyond 9999.
func moment(at time.Time, shown json.Marshaler) map[string]any {
	text, err := shown.MarshalJSON()
	if err != nil {
		text = nil
	}
	return map[string]any{"seconds": at.Unix(), "nanoseconds": at.Nanosecond(), "text": string(text)}
}
