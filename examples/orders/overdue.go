package main

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/leaseq/leaseq/reliable"
)

// page is how many orders are read at once.
const page = 500

// overdue is the source of the compensation scan: orders that wait though their time is over by more than grace. Where
// all is well there are none. It reads in pages, and holds no connection while their jobs are enqueued.
func overdue(shop Shop, grace time.Duration) reliable.Source {
	return func(ctx context.Context) iter.Seq2[reliable.Item, error] {
		return func(yield func(reliable.Item, error) bool) {
			after := int64(0)
			for {
				ids, err := shop.Overdue(ctx, after, grace, page)
				if err != nil {
					yield(reliable.Item{}, err)
					return
				}
				for _, id := range ids {
					if !yield(itemOf(id)) {
						return
					}
					after = id
				}
				if len(ids) < page {
					return
				}
			}
		}
	}
}

func itemOf(id int64) (reliable.Item, error) {
	payload, err := json.Marshal(CloseOrder{ID: id})
	return reliable.Item{Kind: CloseOrder{}.Kind(), ID: jobID(id), Payload: payload}, err
}
