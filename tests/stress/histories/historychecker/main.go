// Command historychecker judges histories of concurrent clients with Porcupine: can the operations on a partition be put
// in an order that explains every answer, and in which nothing comes before what had ended when it began?
//
// It reads one history a line, and writes one verdict a line as soon as it has it. The exit status is 0 if all histories
// are linearizable, 1 if one is not or could not be decided in time, 2 for a line that is no history.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
)

const lineBytesMax = 256 << 20

func main() {
	limit := flag.Duration("limit", time.Minute, "the time for one history")
	pictures := flag.String("pictures", "", "a directory for a page about each history that is not linearizable")
	flag.Parse()
	os.Exit(run(os.Stdin, os.Stdout, *limit, *pictures))
}

func run(input io.Reader, output io.Writer, limit time.Duration, pictures string) int {
	var lock sync.Mutex
	status := 0
	writer := bufio.NewWriter(output)
	tell := func(told verdict, err error) {
		lock.Lock()
		defer lock.Unlock()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 2
			return
		}
		if !told.Linearizable && status == 0 {
			status = 1
		}
		line, _ := json.Marshal(told)
		writer.Write(append(line, '\n'))
		writer.Flush()
	}
	lines := make(chan []byte)
	var judges sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		judges.Add(1)
		go func() {
			defer judges.Done()
			for line := range lines {
				read, err := parse(line)
				if err != nil {
					tell(verdict{}, err)
					continue
				}
				tell(judge(read, limit, pictures))
			}
		}()
	}
	scanner := bufio.NewScanner(input)
	scanner.Buffer(nil, lineBytesMax)
	for scanner.Scan() {
		if len(scanner.Bytes()) > 0 {
			lines <- append([]byte(nil), scanner.Bytes()...)
		}
	}
	close(lines)
	judges.Wait()
	if err := scanner.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	return status
}
