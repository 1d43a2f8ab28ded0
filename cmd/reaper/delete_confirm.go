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
	return confirm(ctx, c.in, c.app.err, "This cannot be undone. Type the queue's name to delete it: ", c.queue, "that is not its name")
}

// confirm asks a person to type a word.
func confirm(ctx context.Context, in io.Reader, out io.Writer, question, word, mistake string) error {
	fmt.Fprint(out, question)
	answer := make(chan string, 1)
	go func() { // nothing can end a read from a terminal
		text, _ := bufio.NewReader(io.LimitReader(in, 1024)).ReadString('\n')
		answer <- text
	}()
	select {
	case text := <-answer:
		if strings.TrimRight(text, "\r\n") == word {
			return nil
		}
		return errors.New(mistake + ": nothing was deleted")
	case <-ctx.Done():
		return fmt.Errorf("nothing was deleted: %w", context.Cause(ctx))
	}
}
