// Orders of customers: placed once, whatever happens to the answer, and paid, whatever others write at the same time.

export class Orders {
  constructor(table) {
    this.table = table;
  }

  // An order that is there already, from an attempt without an answer, is this one.
  async place(customer, number, total) {
    const order = { partitionKey: customer, rowKey: number, total, status: "new" };
    try {
      await this.table.createEntity(order);
    } catch (error) {
      if (error.statusCode !== 409) throw error;
      const present = await this.table.getEntity(customer, number);
      if (present.total !== total) throw error;
    }
  }

  // If another program has changed the order since it was read, it is read again.
  async pay(customer, number) {
    for (;;) {
      const { etag } = await this.table.getEntity(customer, number);
      try {
        await this.table.updateEntity({ partitionKey: customer, rowKey: number, status: "paid" }, "Merge", { etag });
        return;
      } catch (error) {
        if (error.statusCode !== 412) throw error;
      }
    }
  }

  async of(customer) {
    const found = [];
    const filter = `PartitionKey eq '${customer.replaceAll("'", "''")}'`;
    for await (const order of this.table.listEntities({ queryOptions: { filter } })) found.push(order);
    return found;
  }
}
