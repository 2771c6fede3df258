// The load generator of the benchmarks: one job as JSON on standard input, one result as JSON on
// standard output. It sends Table service requests quickly and counts what comes back; it knows
// nothing of rounds, servers or ratios.
//
// One thread and one epoll loop serve all connections, with no goroutine hand-over and no
// allocation on the way: on a small machine it shares its cores with the server it measures.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
)

func main() {
	var job Job
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&job); err != nil {
		fail("the job cannot be read", err)
	}
	runtime.GOMAXPROCS(1)
	runtime.LockOSThread()
	debug.SetGCPercent(800)

	load, err := newLoad(&job)
	if err != nil {
		fail("the load cannot start", err)
	}
	result, err := load.run()
	if err != nil {
		fail("the load broke off", err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail("the result cannot be written", err)
	}
}

func fail(what string, err error) {
	fmt.Fprintf(os.Stderr, "loadgen: %s: %v\n", what, err)
	os.Exit(1)
}
