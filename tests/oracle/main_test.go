package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
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

// asking returns a batch with a question.
func asking(question string, texts ...string) []byte {
	all := batch(append([]string{question}, texts...)...)
	binary.BigEndian.PutUint32(all, uint32(len(texts))|questionFollows)
	return all
}

func TestQuestions(t *testing.T) {
	for _, row := range []struct{ question, text, answer string }{
		{"address", "010.0.0.1", `{"reads":{"address":"10.0.0.1"}}`},
		{"duration", "90s", `{"reads":{"nanoseconds":90000000000,"text":"1m30s"}}`},
		{"flag", "strings\x1fa,b\x1fc", `{"reads":["a","b","c"]}`},
		{"int-or-string", "25%\x1f10", `{"reads":{"down":2,"up":3}}`},
		{"json", `{"a":[1,2.5],"a":"\ud800"}`, "{\"reads\":{\"kubernetes\":{\"a\":\"text \ufffd\"},\"standard\":{\"a\":\"text \ufffd\"}}}"},
		{"json", "-1", `{"reads":{"kubernetes":"int -1","standard":"float bff0000000000000"}}`},
		{"label-selector", "In app web\x1f\x1fapp=web\x1f", `{"reads":{"matches":[true,false],"requirements":["app in web"]}}`},
		{"name", "A.b", `{"reads":{"label":false,"labelKey":true,"labelValue":true,"subdomain":false}}`},
		{"object", "meta.k8s.io/v1\x1fPartialObjectMetadata\x1f\n\x03\n\x01a\x98\x06\x01", `{"reads":{"object":"0a110a016112001a0022002a00320038004200"}}`},
		{"quantity", "1\x1f500m", `{"reads":{"canonical":"1","difference":"500m","milli":1000,"order":1,"rounded":"1","sign":1,"sum":"1500m","value":1}}`},
		{"schedule", "UTC\x1f0\x1f0 0 1 1 *\x1f", `{"reads":{"error":"failed to parse int from *\u001f: strconv.Atoi: parsing \"*\\x1f\": invalid syntax"}}`},
		{"schedule", "UTC\x1f0\x1f@every 1h", `{"reads":{"times":[3600,7200,10800,14400,18000,21600]}}`},
		// The path exists on a machine with files of zones.
		{"schedule", "Asia//Tokyo\x1f0\x1f@hourly", `{"refuses":"error: a path of a file is no name of a zone"}`},
		{"schedule", "Asia/Tokyo\x1f0\x1f0 0 1 1 *", `{"reads":{"times":[31503600,63039600,94662000,126198000,157734000,189270000]}}`},
		{"strict-address", "010.0.0.1", `{"refuses":"error: neither an address nor a range"}`},
		{"strict-address", "10.0.0.1/08", `{"refuses":"error: neither an address nor a range"}`},
		{"selector", "app>1\x1fapp=2", `{"reads":{"matches":[true],"requirements":["app gt 1"]}}`},
		{"server", "tls\x1fapi.test:0443", `{"reads":{"host":"api.test","path":"/version","port":443,"scheme":"https"}}`},
		{"server", "\x1fhttp://api.test//a/../b!", `{"reads":{"host":"api.test","path":"/b%21/version","port":80,"scheme":"http"}}`},
		{"time", "1970-01-01T00:00:01Z", `{"reads":{"time":{"nanoseconds":0,"seconds":1,"text":"\"1970-01-01T00:00:01Z\""}}}`},
	} {
		var out bytes.Buffer
		if err := run(bytes.NewReader(asking(row.question, row.text)), &out); err != nil {
			t.Errorf("%s %q: %v", row.question, row.text, err)
		} else if answer := strings.TrimSpace(out.String()); answer != row.answer {
			t.Errorf("%s %q: %s, not %s", row.question, row.text, answer, row.answer)
		}
	}
}

func TestRefusalsHaveReasons(t *testing.T) {
	var out bytes.Buffer
	if err := run(bytes.NewReader(asking("quantity", "x", "1")), &out); err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(&out)
	for _, refused := range []bool{true, false} {
		var answer reading
		if err := decoder.Decode(&answer); err != nil {
			t.Fatal(err)
		}
		if (answer.Refuses != "") != refused || (answer.Reads == nil) != refused {
			t.Errorf("%+v", answer)
		}
	}
}

func TestUnknownQuestionIsAnError(t *testing.T) {
	if err := run(bytes.NewReader(asking("nonsense", "1")), io.Discard); err == nil {
		t.Error("no error")
	}
}
