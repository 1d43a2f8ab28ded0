package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// confirm asks for the queue's name.
func (c *deleteCommand) confirm(ctx context.Context) error {
	fmt.Fprintf(c.app.err, "This cannot be undone. Type the queue's name to delete it: ")
	answer := make(chan string, 1)
	go func() { // nothing can end a read from a terminal
		text, _ := bufio.NewReader(io.LimitReader(c.in, 1024)).ReadString('\n')
		answer <- text
	}()
	select {
	case text := <-answer:
		if strings.TrimRight(text, "\r\n") == c.queue {
			return nil
		}
		return errors.New("that is not its name: nothing was deleted")
	case <-ctx.Done():
		return fmt.Errorf("nothing was deleted: %w", context.Cause(ctx))
	}
}
