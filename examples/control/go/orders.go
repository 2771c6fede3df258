// Package orders keeps orders of customers: placed once, whatever happens to the answer, and paid, whatever others write
// at the same time.
package orders

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// Order is an entity: one order of a customer.
type Order struct {
	PartitionKey string
	RowKey       string
	Total        int32  `json:"total"`
	Status       string `json:"status"`
}

// Orders are the orders in one table.
type Orders struct {
	Table *aztables.Client
}

// Place stores an order. An order that is there already, from an attempt without an answer, is this one.
func (orders Orders) Place(ctx context.Context, customer, number string, total int32) error {
	entity, err := json.Marshal(Order{customer, number, total, "new"})
	if err != nil {
		return err
	}
	_, err = orders.Table.AddEntity(ctx, entity, nil)
	if !hasStatus(err, http.StatusConflict) {
		return err
	}
	found, getErr := orders.Table.GetEntity(ctx, customer, number, nil)
	if getErr != nil {
		return getErr
	}
	var present Order
	if unreadable := json.Unmarshal(found.Value, &present); unreadable != nil {
		return unreadable
	}
	if present.Total != total {
		return err
	}
	return nil
}

// Pay marks an order as paid. If another program has changed the order since it was read, it is read again.
func (orders Orders) Pay(ctx context.Context, customer, number string) error {
	changes, err := json.Marshal(map[string]string{"PartitionKey": customer, "RowKey": number, "status": "paid"})
	if err != nil {
		return err
	}
	for {
		found, err := orders.Table.GetEntity(ctx, customer, number, nil)
		if err != nil {
			return err
		}
		options := aztables.UpdateEntityOptions{IfMatch: &found.ETag, UpdateMode: aztables.UpdateModeMerge}
		if _, err = orders.Table.UpdateEntity(ctx, changes, &options); !hasStatus(err, http.StatusPreconditionFailed) {
			return err
		}
	}
}

// Of lists the orders of a customer.
func (orders Orders) Of(ctx context.Context, customer string) ([]Order, error) {
	filter := "PartitionKey eq '" + strings.ReplaceAll(customer, "'", "''") + "'"
	found := []Order{}
	for pager := orders.Table.NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &filter}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, entity := range page.Entities {
			var order Order
			if err := json.Unmarshal(entity, &order); err != nil {
				return nil, err
			}
			found = append(found, order)
		}
	}
	return found, nil
}

func hasStatus(err error, status int) bool {
	var answered *azcore.ResponseError
	return errors.As(err, &answered) && answered.StatusCode == status
}
