package reliable

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leaseq/leaseq/lease"
)

// NeverReturned is the column of handlers that do not return.
const NeverReturned = "never returned"

// A SettleTable is the table of a document: cause → returned value → what is settled.
type SettleTable map[string]map[string]string

// ReadSettleTable reads the table that has "the context ended by" in its head.
func ReadSettleTable(t *testing.T, document string) SettleTable {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "\n| the context ended by |")
	require.True(t, found, "%s has no such table", document)
	body, _, _ := strings.Cut("| the context ended by |"+after, "\n\n")
	table := SettleTable{}
	var columns []string
	for n, line := range strings.Split(body, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch n {
		case 0:
			columns = cells[1:]
		case 1:
		default:
			require.Len(t, cells, len(columns)+1, line)
			table[cells[0]] = map[string]string{}
			for i, cell := range cells[1:] {
				table[cells[0]][columns[i]] = cell
			}
		}
	}
	return table
}

// ReturnedValues are the columns of the table, and an error for each; d is what RetryAfter gets.
func ReturnedValues(d time.Duration, wrong error) map[string]error {
	return map[string]error{
		"nil": nil, "`Discard`": Discard(wrong), "`RetryAfter(d)`": RetryAfter(d, wrong), "`Release`": Release(wrong), "another error": wrong,
	}
}

// endings are the rows of the table, as decide gets them.
var endings = map[string]ending{
	"nothing":            {},
	"the job's timeout":  {cause: ErrJobTimeout, noExtend: true},
	"shutdown":           {cause: ErrShutdown},
	"the local deadline": {cause: lease.ErrLost, state: lease.HoldOverdue},
	"the local deadline, where nobody extends": {cause: lease.ErrLost, state: lease.HoldOverdue, noExtend: true},
	"a lost lease": {cause: lease.ErrLost, state: lease.HoldLost},
	"a cancel":     {cause: lease.ErrCancelled, state: lease.HoldCancelled},
}

func TestTheTableInTheDocsIsTheOneThatDecides(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	const d = time.Hour
	said := map[string]verdict{
		"ack": {op: opAck}, "bury": {op: opBury}, "nack, due after d": {op: opNack, delay: d, hasDelay: true},
		"release": {op: opRelease}, "nack, with back-off": {op: opNack},
	}
	table := ReadSettleTable(t, "../docs/consumer.md")
	require.Len(t, table, len(endings))
	for cause, row := range table {
		require.Contains(t, endings, cause)
		require.Len(t, row, 6, cause)
		require.Contains(t, row, NeverReturned)
		for returned, err := range ReturnedValues(d, wrong) {
			require.Contains(t, row, returned)
			got := decide(verdictOf(err), endings[cause])
			if row[returned] == "refused" || row[returned] == "removed" {
				require.Equal(t, decide(verdictOf(err), ending{}), got, "%s, %s: as where nothing ended", cause, returned)
				continue
			}
			want, ok := said[row[returned]]
			require.True(t, ok, "%s, %s: %q", cause, returned, row[returned])
			got.err = nil
			require.Equal(t, want, got, "%s, %s", cause, returned)
		}
	}
}

func TestTheTableOfTheProtocolSaysTheSame(t *testing.T) {
	t.Parallel()
	here, there := ReadSettleTable(t, "../docs/consumer.md"), ReadSettleTable(t, "../docs/protocol.md")
	require.Len(t, there, len(here)-1, "the protocol has the deadline where nobody extends in the row of the deadline")
	for cause, row := range there {
		for returned, cell := range row {
			first, _, _ := strings.Cut(cell, ": ")
			first, _, _ = strings.Cut(first, "; ")
			want := here[cause][returned]
			switch {
			case cause == "a cancel" && returned == "nil":
				require.Equal(t, "removed", first)
				require.Equal(t, "ack", want, "it is removed by its ack")
			case cause == "a lost lease":
				require.True(t, strings.HasPrefix(cell, "refused"))
				require.Equal(t, "refused", want)
			case want == "nack, with back-off":
				require.True(t, strings.HasPrefix(first, "nack"), "%s, %s", cause, returned)
			default:
				require.Equal(t, want, first, "%s, %s", cause, returned)
			}
		}
	}
}

// What decide is told of a job whose time is over, and of one whose lease nobody extends, is the same for all that
// matters: an overdue hold after a timeout has the reason of the lease.
func TestAfterTheTimeoutAnOverdueLeaseIsStillANack(t *testing.T) {
	t.Parallel()
	e := ending{cause: ErrJobTimeout, state: lease.HoldOverdue, noExtend: true}
	got := decide(verdictOf(context.DeadlineExceeded), e)
	require.Equal(t, opNack, got.op)
	require.ErrorIs(t, got.err, errLeaseRanOut)
	require.ErrorIs(t, got.err, context.DeadlineExceeded)
}
