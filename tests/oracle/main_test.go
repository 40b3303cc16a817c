package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
)

func batch(texts ...string) []byte {
	all := binary.BigEndian.AppendUint32(nil, uint32(len(texts)))
	for _, text := range texts {
		all = binary.BigEndian.AppendUint32(all, uint32(len(text)))
		all = append(all, text...)
	}
	return all
}

func TestAnswersKeepTheOrderOfTexts(t *testing.T) {
	good, err := os.ReadFile("../data/requests/two-groups.csr")
	if err != nil {
		t.Fatal(err)
	}
	other := "-----BEGIN OTHER-----\nAAAA\n-----END OTHER-----\n"
	var out bytes.Buffer
	if err := run(bytes.NewReader(append(batch("nonsense", string(good)), batch(other)...)), &out); err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(&out)
	var answers [3]answer
	for at := range answers {
		if err := decoder.Decode(&answers[at]); err != nil {
			t.Fatal(err)
		}
	}
	if answers[0].Block != nil || answers[0].Error == "" {
		t.Errorf("nonsense: %+v", answers[0])
	}
	request := answers[1].Request
	if request == nil || request.CommonName != "system:node:n2" || !request.Verified || request.Key != request.IssuedKey {
		t.Errorf("two-groups.csr: %+v", request)
	}
	if answers[2].Block == nil || answers[2].Block.Label != "OTHER" || answers[2].Error == "" {
		t.Errorf("another label: %+v", answers[2])
	}
}

func TestIncompleteBatchIsAnError(t *testing.T) {
	all := batch("text")
	for length := 1; length < len(all); length++ {
		if err := run(bytes.NewReader(all[:length]), io.Discard); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v", length, len(all), err)
		}
	}
}
