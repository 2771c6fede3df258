package sdk

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

func corsRule() *aztables.CorsRule {
	return &aztables.CorsRule{
		AllowedOrigins:  to.Ptr("https://a.example,http://b.example"),
		AllowedMethods:  to.Ptr("GET,PUT"),
		AllowedHeaders:  to.Ptr("accept,x-ms-*"),
		ExposedHeaders:  to.Ptr("x-ms-*"),
		MaxAgeInSeconds: to.Ptr(int32(500)),
	}
}

func retention(days int32) *aztables.RetentionPolicy {
	return &aztables.RetentionPolicy{Enabled: to.Ptr(true), Days: to.Ptr(days)}
}

// The service whose properties are, after the test, as they were: they belong to the account.
func restoredService(t *testing.T) *aztables.ServiceClient {
	t.Helper()
	svc := service(t)
	before := of(svc.GetProperties(ctx, nil)).must(t)
	if before.Cors == nil {
		before.Cors = []*aztables.CorsRule{}
	}
	t.Cleanup(func() {
		if _, err := svc.SetProperties(ctx, before.ServiceProperties, nil); err != nil {
			t.Errorf("restoring the properties: %v", err)
		}
	})
	return svc
}

func TestServiceProperties(t *testing.T) {
	svc := restoredService(t)
	logging := &aztables.Logging{
		Version: to.Ptr("1.0"), Read: to.Ptr(true), Write: to.Ptr(false), Delete: to.Ptr(true), RetentionPolicy: retention(5),
	}
	metrics := &aztables.Metrics{
		Version: to.Ptr("1.0"), Enabled: to.Ptr(true), IncludeAPIs: to.Ptr(true), RetentionPolicy: retention(365),
	}
	properties := aztables.ServiceProperties{
		Logging: logging, HourMetrics: metrics, MinuteMetrics: metrics, Cors: []*aztables.CorsRule{corsRule()},
	}
	of(svc.SetProperties(ctx, properties, nil)).must(t)
	found := of(svc.GetProperties(ctx, nil)).must(t)
	same(t, "write logging", *found.Logging.Write, false)
	same(t, "delete logging", *found.Logging.Delete, true)
	same(t, "days of logging", *found.Logging.RetentionPolicy.Days, int32(5))
	same(t, "days of hours", *found.HourMetrics.RetentionPolicy.Days, int32(365))
	same(t, "APIs by minutes", *found.MinuteMetrics.IncludeAPIs, true)
	same(t, "the number of rules", len(found.Cors), 1)
	rule := found.Cors[0]
	same(t, "origins", *rule.AllowedOrigins, *corsRule().AllowedOrigins)
	same(t, "methods", *rule.AllowedMethods, *corsRule().AllowedMethods)
	same(t, "allowed headers", *rule.AllowedHeaders, *corsRule().AllowedHeaders)
	same(t, "exposed headers", *rule.ExposedHeaders, *corsRule().ExposedHeaders)
	same(t, "age", *rule.MaxAgeInSeconds, int32(500))
}

func TestSixCorsRulesAreTooMany(t *testing.T) {
	svc := restoredService(t)
	rules := []*aztables.CorsRule{}
	for range 6 {
		rules = append(rules, corsRule())
	}
	of(svc.SetProperties(ctx, aztables.ServiceProperties{Cors: rules}, nil)).fails(t, 400, "InvalidXmlDocument")
}

func TestStatisticsOfTheSecondary(t *testing.T) {
	svc := of(aztables.NewServiceClientWithSharedKey(setting(t, "TABLESTONE_TEST_ENDPOINT")+"-secondary", credential(t), options())).must(t)
	found := of(svc.GetStatistics(ctx, nil)).must(t)
	same(t, "status", *found.GeoReplication.Status, aztables.GeoReplicationStatusLive)
	if age := time.Since(*found.GeoReplication.LastSyncTime); age > 5*time.Minute || age < -5*time.Second {
		t.Errorf("the last sync was %v ago", age)
	}
}
