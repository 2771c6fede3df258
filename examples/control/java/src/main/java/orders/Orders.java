package orders;

import com.azure.core.util.Context;
import com.azure.data.tables.TableClient;
import com.azure.data.tables.models.ListEntitiesOptions;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableEntityUpdateMode;
import com.azure.data.tables.models.TableServiceException;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;

/** Orders of customers: placed once, whatever happens to the answer, and paid, whatever others write at the same time. */
public final class Orders {
    private final TableClient table;

    public Orders(TableClient table) {
        this.table = table;
    }

    /** An order that is there already, from an attempt without an answer, is this one. */
    public void place(String customer, String number, int total) {
        TableEntity order = new TableEntity(customer, number)
            .setProperties(Map.of("total", total, "status", "new"));
        try {
            table.createEntity(order);
        } catch (TableServiceException error) {
            if (error.getResponse().getStatusCode() != 409
                || !table.getEntity(customer, number).getProperty("total").equals(total)) {
                throw error;
            }
        }
    }

    /** If another program has changed the order since it was read, it is read again. */
    public void pay(String customer, String number) {
        while (true) {
            TableEntity order = table.getEntity(customer, number);
            order.getProperties().put("status", "paid");
            try {
                table.updateEntityWithResponse(order, TableEntityUpdateMode.MERGE, true, null, Context.NONE);
                return;
            } catch (TableServiceException error) {
                if (error.getResponse().getStatusCode() != 412) {
                    throw error;
                }
            }
        }
    }

    /** The orders of a customer. */
    public List<TableEntity> of(String customer) {
        String filter = "PartitionKey eq '" + customer.replace("'", "''") + "'";
        return table.listEntities(new ListEntitiesOptions().setFilter(filter), null, Context.NONE).stream()
            .collect(Collectors.toList());
    }
}
