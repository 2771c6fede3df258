package tablestone.sdk;

import static org.junit.jupiter.api.Assertions.assertAll;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import com.azure.core.util.Context;
import com.azure.data.tables.models.ListEntitiesOptions;
import com.azure.data.tables.models.TableEntity;
import com.azure.data.tables.models.TableTransactionAction;
import com.azure.data.tables.models.TableTransactionActionType;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class QueriesTest extends ServiceUnderTest {
    private static final OffsetDateTime NOON = OffsetDateTime.parse("2020-02-29T12:00:00.123Z");

    /** Rows 1 to 4 of partition p; row 4 has no property of its own. Row 5 is alone in q. */
    private void fiveEntities() {
        for (int row = 1; row <= 5; row++) {
            TableEntity entity = new TableEntity(row == 5 ? "q" : "p", String.valueOf(row));
            if (row != 4) {
                entity.addProperty("Name", "it's " + "abcde".charAt(row - 1)).addProperty("Number", row)
                    .addProperty("Large", (long) row << 40).addProperty("Ratio", row + 0.5)
                    .addProperty("Even", row % 2 == 0).addProperty("When", NOON.plusDays(row))
                    .addProperty("Id", new UUID((long) row << 32, 0))
                    .addProperty("Bytes", new byte[] {(byte) row, -1});
            }
            table.createEntity(entity);
        }
    }

    @Test
    void filters() { // source: wire 6.1 to 6.4
        fiveEntities();
        Map<String, String> cases = new LinkedHashMap<>();
        cases.put("PartitionKey eq 'p'", "1234");
        cases.put("PartitionKey eq 'p' and RowKey eq '2'", "2");
        cases.put("PartitionKey eq 'p' and RowKey ge '2' and RowKey lt '4'", "23");
        cases.put("(PartitionKey eq 'q') or (RowKey eq '1')", "15");
        cases.put("Name eq 'it''s b'", "2");
        cases.put("Number gt 2", "35");
        cases.put("Number ne 2", "135"); // row 4 has no Number
        cases.put("not (Number eq 2)", "1345");
        cases.put("Large eq 2199023255552L", "2");
        cases.put("Ratio le 2.5", "12");
        cases.put("Even eq true", "2");
        cases.put("not Even and PartitionKey eq 'p'", "134");
        cases.put("When ge datetime'2020-03-03T12:00:00.123Z'", "35");
        cases.put("Id eq guid'00000003-0000-0000-0000-000000000000'", "3");
        cases.put("Bytes eq X'02ff'", "2");
        cases.put("Absent eq 1", "");
        cases.put("Number eq 1.0", ""); // wire 6.4: a literal is never narrowed
        assertAll(cases.entrySet().stream().map(c ->
            () -> assertEquals(c.getValue(), String.join("", rowKeysOf(filtered(c.getKey()))), c.getKey())));
    }

    @Test
    void filtersRefused() { // source: wire 6.4, 6.5
        fiveEntities();
        assertAll(
            () -> assertFails(400, "InvalidInput", "Syntax error at position 7 in 'aaa bbb ccc'.",
                () -> rowKeysOf(filtered("aaa bbb ccc"))),
            // wire 6.4: this very request is in the SDK's own tests.
            () -> assertFails(400, "InvalidInput", "A binary operator with incompatible types was detected. Found operand "
                + "types 'Edm.String' and 'Edm.Boolean' for operator kind 'And'.",
                () -> rowKeysOf(filtered("(PartitionKey ) and (RowKey ge 'x')"))),
            () -> assertFails(501, "NotImplemented",
                "The requested operation is not implemented on the specified resource.",
                () -> rowKeysOf(filtered("1 eq 2"))));
    }

    @Test
    void projection() { // wire 5.6
        fiveEntities();
        ListEntitiesOptions options = filtered("RowKey eq '1'").setSelect(Arrays.asList("RowKey", "Number", "Absent"));
        TableEntity found = table.listEntities(options, Duration.ofSeconds(20), Context.NONE).iterator().next();
        Map<String, Object> expected = new HashMap<>();
        expected.put("Number", 1);
        expected.put("Absent", null);
        assertEquals(expected, propertiesOf(found));
        assertEquals("1", found.getRowKey());
        assertNotNull(found.getETag());
    }

    @Test
    void topIsThePageSize() { // wire 6.7
        fiveEntities();
        assertEquals(List.of(List.of("1", "2"), List.of("3", "4"), List.of("5")),
            pagesOf(new ListEntitiesOptions().setTop(2)));
        assertEquals(List.of(List.of()), pagesOf(new ListEntitiesOptions().setTop(0)));
        for (int top : new int[] {1001, -1}) {
            assertFails(400, "InvalidInput", "One of the request inputs is not valid.",
                () -> pagesOf(new ListEntitiesOptions().setTop(top)));
        }
    }

    @Test
    void listingResumesFromAContinuationToken() { // wire 6.9
        fiveEntities();
        ListEntitiesOptions options = filtered("Number ge 1").setTop(2);
        String token = table.listEntities(options, null, null).iterableByPage().iterator().next().getContinuationToken();
        List<String> resumed = new ArrayList<>();
        table.listEntities(options, null, null).iterableByPage(token)
            .forEach(page -> page.getValue().forEach(entity -> resumed.add(entity.getRowKey())));
        assertEquals(List.of("3", "5"), resumed);
    }

    @Test
    void pagesOverUnusualKeys() { // wire 6.9, 6.10: a token for every key, in ordinal order
        List<String> keys = List.of("", " ", "%", "'", "+", "1!4!cA--", ";", "A", "a", "a b", "é", "中", "😀", "\uffee");
        keys.forEach(key -> table.createEntity(new TableEntity(key, key)));
        List<String> seen = new ArrayList<>();
        pagesOf(new ListEntitiesOptions().setTop(1)).forEach(seen::addAll);
        assertEquals(keys, seen);
    }

    @Test
    void aPageHoldsAThousand() { // wire 6.6
        List<TableTransactionAction> actions = IntStream.range(0, 1001)
            .mapToObj(row -> new TableTransactionAction(
                TableTransactionActionType.UPSERT_REPLACE, entity(String.format("%04d", row))))
            .collect(Collectors.toList());
        for (int first = 0; first < actions.size(); first += 100) {
            table.submitTransaction(actions.subList(first, Math.min(first + 100, actions.size())));
        }
        List<List<String>> pages = pagesOf(new ListEntitiesOptions());
        assertEquals(List.of(1000, 1), pages.stream().map(List::size).collect(Collectors.toList()));
        assertEquals("1000", pages.get(1).get(0));
    }
}
