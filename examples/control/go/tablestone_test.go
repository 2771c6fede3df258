// A Tablestone server for tests, and its control API. Knows nothing of orders.
package orders

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

type tablestone struct {
	process *exec.Cmd
	control string
}

func startTablestone() (*tablestone, error) {
	command := os.Getenv("TABLESTONE")
	if command == "" {
		command = "tablestone"
	}
	words := append(strings.Fields(command), strings.Fields("serve --engine memory --port 0 --control 0 --print json")...)
	process := exec.Command(words[0], words[1:]...)
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("%s ended: %w", command, process.Wait())
	}
	var ready struct{ Control string }
	if err := json.Unmarshal(line, &ready); err != nil {
		return nil, err
	}
	return &tablestone{process, ready.Control}, nil
}

func (server *tablestone) stop() {
	_ = server.process.Process.Signal(os.Interrupt)
	_ = server.process.Wait()
}

// ask reads the answer of the control API into value. A refusal is an error with its sentence.
func (server *tablestone) ask(method, path string, members, value any) error {
	var body io.Reader
	if members != nil {
		text, err := json.Marshal(members)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, server.control+path, body)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s", method, path, text)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(text, value)
}
