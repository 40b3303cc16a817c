//go:build !standard

package main

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // For `go test`, which does not set zoneinfo.

	"github.com/robfig/cron/v3"
)

// zoneinfo is the path of the zones of the Go distribution, set by build.sh. They are read before the machine's files of zones, which may be
// of another version.
var zoneinfo string

func init() {
	if zoneinfo != "" {
		os.Setenv("ZONEINFO", zoneinfo)
	}
}

// activations is the number of times that are computed for a schedule.
const activations = 6

// readSchedule reads a time zone, a time in seconds since 1970 until 2106, and a schedule, and returns the next times. Errors are a part of
// the answer, since events show them to users.
func readSchedule(text string) (any, error) {
	zone, rest := first(text)
	seconds, spec := first(rest)
	from, err := strconv.ParseUint(seconds, 10, 32)
	if err != nil {
		return nil, err
	}
	if isPath(zone) || isPath(prefixZone(spec)) {
		return nil, errors.New("a path of a file is no name of a zone")
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return nil, errors.New("unknown time zone")
	}
	schedule, err := parseSchedule(spec)
	if err != nil {
		return map[string]any{"error": withoutFiles(err.Error())}, nil
	}
	isPrefixed := strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=")
	if fields, hasFields := schedule.(*cron.SpecSchedule); hasFields && !isPrefixed {
		fields.Location = location
	}
	times := []int64{}
	at := time.Unix(int64(from), 0).UTC()
	for range activations {
		if at = schedule.Next(at); at.IsZero() {
			break
		}
		times = append(times, at.Unix())
	}
	return map[string]any{"times": times}, nil
}

// fileErrors matches reasons why a zone cannot be read that depend on the files of the machine.
var fileErrors = regexp.MustCompile(`(?s)^(provided bad location (.*)): (is a directory|not a directory|malformed time zone information|file name too long)$`)

// withoutFiles replaces such a reason by the reason for an unknown zone.
func withoutFiles(message string) string {
	return fileErrors.ReplaceAllString(message, "$1: unknown time zone $2")
}

// prefixZone returns the zone that a schedule names itself.
func prefixZone(spec string) string {
	for _, prefix := range []string{"TZ=", "CRON_TZ="} {
		if rest, isPrefixed := strings.CutPrefix(spec, prefix); isPrefixed {
			if name, _, isComplete := strings.Cut(rest, " "); isComplete {
				return name
			}
		}
	}
	return ""
}

// isPath reports whether only the files of the machine may resolve the name of a zone.
func isPath(zone string) bool {
	return strings.Contains(zone, "//") || strings.Contains(zone, "/./") || strings.HasPrefix(zone, "./") || strings.HasSuffix(zone, "/")
}

// parseSchedule returns panics as errors.
func parseSchedule(spec string) (schedule cron.Schedule, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = errors.New("invalid schedule format: " + cause.(error).Error())
		}
	}()
	return cron.ParseStandard(spec)
}
