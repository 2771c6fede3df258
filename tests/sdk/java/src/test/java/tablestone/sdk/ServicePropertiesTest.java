package tablestone.sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.credential.AzureNamedKeyCredential;
import com.azure.data.tables.TableServiceClientBuilder;
import com.azure.data.tables.models.TableServiceCorsRule;
import com.azure.data.tables.models.TableServiceGeoReplication;
import com.azure.data.tables.models.TableServiceGeoReplicationStatus;
import com.azure.data.tables.models.TableServiceLogging;
import com.azure.data.tables.models.TableServiceMetrics;
import com.azure.data.tables.models.TableServiceProperties;
import com.azure.data.tables.models.TableServiceRetentionPolicy;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Service properties and statistics (auth 8, 9). The properties belong to the account: each test restores them. */
class ServicePropertiesTest extends ServiceUnderTest {
    private TableServiceProperties before;

    @BeforeEach
    void rememberProperties() {
        before = SERVICE.getProperties();
    }

    @AfterEach
    void restoreProperties() {
        if (before.getCorsRules() == null) {
            before.setCorsRules(new ArrayList<>());
        }
        SERVICE.setProperties(before);
    }

    private static TableServiceCorsRule rule() {
        return new TableServiceCorsRule().setAllowedOrigins("https://a.example,http://b.example")
            .setAllowedMethods("GET,PUT").setAllowedHeaders("accept,x-ms-*").setExposedHeaders("x-ms-*")
            .setMaxAgeInSeconds(500);
    }

    private static TableServiceRetentionPolicy retention(int days) {
        return new TableServiceRetentionPolicy().setEnabled(true).setDaysToRetain(days);
    }

    private static TableServiceMetrics metrics(int days) {
        return new TableServiceMetrics().setVersion("1.0").setEnabled(true).setIncludeApis(true)
            .setRetentionPolicy(retention(days));
    }

    @Test
    void propertiesAreGivenBackAsTheyWereSet() {
        SERVICE.setProperties(new TableServiceProperties()
            .setLogging(new TableServiceLogging().setAnalyticsVersion("1.0").setReadLogged(true).setDeleteLogged(true)
                .setRetentionPolicy(retention(5)))
            .setHourMetrics(metrics(365)).setMinuteMetrics(metrics(1)).setCorsRules(List.of(rule())));
        TableServiceProperties found = SERVICE.getProperties();
        assertTrue(found.getLogging().isReadLogged());
        assertFalse(found.getLogging().isWriteLogged());
        assertEquals(5, found.getLogging().getRetentionPolicy().getDaysToRetain());
        assertEquals(365, found.getHourMetrics().getTableServiceRetentionPolicy().getDaysToRetain());
        assertEquals(true, found.getMinuteMetrics().isIncludeApis());
        assertEquals(1, found.getCorsRules().size());
        TableServiceCorsRule given = found.getCorsRules().get(0);
        assertEquals(rule().getAllowedOrigins(), given.getAllowedOrigins());
        assertEquals(rule().getAllowedMethods(), given.getAllowedMethods());
        assertEquals(rule().getAllowedHeaders(), given.getAllowedHeaders());
        assertEquals(rule().getExposedHeaders(), given.getExposedHeaders());
        assertEquals(500, given.getMaxAgeInSeconds());
    }

    @Test
    void sixRulesAreTooMany() {
        assertRefused(400, () -> SERVICE.setProperties(
            new TableServiceProperties().setCorsRules(Collections.nCopies(6, rule()))));
    }

    @Test
    void statisticsOfTheSecondary() {
        TableServiceGeoReplication found = new TableServiceClientBuilder()
            .endpoint(setting("TABLESTONE_TEST_ENDPOINT") + "-secondary")
            .credential(new AzureNamedKeyCredential(
                setting("TABLESTONE_TEST_ACCOUNT"), setting("TABLESTONE_TEST_KEY")))
            .buildClient().getStatistics().getGeoReplication();
        assertEquals(TableServiceGeoReplicationStatus.LIVE, found.getStatus());
        Duration age = Duration.between(found.getLastSyncTime(), OffsetDateTime.now());
        assertTrue(age.abs().compareTo(Duration.ofMinutes(5)) < 0, age::toString);
    }
}
