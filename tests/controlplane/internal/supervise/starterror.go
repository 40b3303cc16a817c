package supervise

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

const (
	tailLines = 25
	tailBytes = 16 << 10
)

// StartError says why a component could not be started, with the end of its log.
type StartError struct {
	Component string
	What      string
	Cause     error
	LogFile   string
	LogTail   string
}

func (e *StartError) Error() string {
	return fmt.Sprintf("%s %s: %v\nend of %s:\n%s", e.Component, e.What, e.Cause, e.LogFile, e.LogTail)
}

func (e *StartError) Unwrap() error { return e.Cause }

// Tail gives the last lines of a file; what went wrong with reading it is given in their place.
func Tail(path string, lines int) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := file.Seek(-tailBytes, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	text, err := io.ReadAll(io.LimitReader(file, tailBytes))
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimRight(text, "\n")
	for at := len(text) - 1; at >= 0; at-- {
		if text[at] == '\n' {
			if lines--; lines == 0 {
				text = text[at+1:]
				break
			}
		}
	}
	return string(text)
}
