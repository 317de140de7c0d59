// The program of franz-go: does what plan.py says, told the plan as JSON on stdin, and writes its report on stdout.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type plan struct {
	Bootstrap       string              `json:"bootstrap"`
	Topic           string              `json:"topic"`
	Output          string              `json:"output"`
	Group           string              `json:"group"`
	Copier          string              `json:"copier"`
	TransactionalID string              `json:"transactional_id"`
	Codecs          []string            `json:"codecs"`
	Rounds          []bool              `json:"rounds"`
	Values          map[string][]string `json:"values"`
	Total           int                 `json:"total"`
}

// A record as seen: partition, offset, timestamp in milliseconds, value.
type seen [4]any

type report struct {
	Read      []seen           `json:"read"`
	Committed map[int32]int64  `json:"committed"`
	ByTime    map[int64]*int64 `json:"by_time"`
	Copied    []seen           `json:"copied"`
	Fenced    bool             `json:"fenced"`
}

type program struct {
	ctx    context.Context
	plan   plan
	report report
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	p := program{ctx: ctx}
	must(json.NewDecoder(os.Stdin).Decode(&p.plan))
	admin := kadm.NewClient(p.client())
	defer admin.Close()
	for _, topic := range []string{p.plan.Topic, p.plan.Output} {
		created, err := admin.CreateTopic(ctx, 2, 1, nil, topic)
		must(err)
		must(created.Err)
	}
	for _, codec := range p.plan.Codecs {
		p.write(codec, kgo.ProducerBatchCompression(codecs[codec]), kgo.DisableIdempotentWrite())
	}
	p.write("idempotent", kgo.ProducerBatchCompression(kgo.NoCompression()))
	p.transactions()
	p.read(admin)
	p.copy()
	p.readCopy()
	must(json.NewEncoder(os.Stdout).Encode(p.report))
}

func (p *program) client(more ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(p.common(), more...)...)
	must(err)
	return made
}

func (p *program) common() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(p.plan.Bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(50 * time.Millisecond),
	}
}

func (p *program) put(client *kgo.Client, partition int32, values []string) error {
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: p.plan.Topic, Partition: partition, Value: []byte(value)})
	}
	return client.ProduceSync(p.ctx, records...).FirstErr()
}

func (p *program) write(stage string, options ...kgo.Opt) {
	client := p.client(options...)
	defer client.Close()
	must(p.put(client, 0, p.plan.Values[stage]))
}

func (p *program) transactions() {
	older := p.client(kgo.TransactionalID(p.plan.TransactionalID))
	defer older.Close()
	_, _, err := older.ProducerID(p.ctx) // initialises it
	must(err)
	client := p.client(kgo.TransactionalID(p.plan.TransactionalID))
	defer client.Close()
	for round, commit := range p.plan.Rounds {
		must(client.BeginTransaction())
		must(p.put(client, 1, p.plan.Values[fmt.Sprintf("round%d", round)]))
		must(client.EndTransaction(p.ctx, kgo.TransactionEndTry(commit)))
	}
	must(older.BeginTransaction())
	err = p.put(older, 1, []string{"from a zombie"})
	if err == nil {
		err = older.EndTransaction(p.ctx, kgo.TryCommit)
	}
	p.report.Fenced = errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
	if !p.report.Fenced {
		must(err)
	}
}

func (p *program) poll(poll func(context.Context) kgo.Fetches) []*kgo.Record {
	fetches := poll(p.ctx)
	must(fetches.Err())
	return fetches.Records()
}

func asSeen(record *kgo.Record) seen {
	return seen{record.Partition, record.Offset, record.Timestamp.UnixMilli(), string(record.Value)}
}

func (p *program) read(admin *kadm.Client) {
	client := p.client(kgo.ConsumerGroup(p.plan.Group), kgo.ConsumeTopics(p.plan.Topic), kgo.DisableAutoCommit())
	defer client.Close()
	var times []int64
	for len(p.report.Read) < p.plan.Total {
		for _, record := range p.poll(client.PollFetches) {
			p.report.Read = append(p.report.Read, asSeen(record))
			if record.Partition == 0 {
				times = append(times, record.Timestamp.UnixMilli())
			}
		}
	}
	must(client.CommitUncommittedOffsets(p.ctx))
	offsets, err := admin.FetchOffsets(p.ctx, p.plan.Group)
	must(err)
	p.report.Committed = map[int32]int64{}
	offsets.Each(func(found kadm.OffsetResponse) {
		must(found.Err)
		p.report.Committed[found.Partition] = found.At
	})
	p.report.ByTime = map[int64]*int64{}
	latest := times[0]
	for _, each := range times {
		latest = max(latest, each)
	}
	for _, asked := range []int64{times[len(times)/2], latest + 1} {
		listed, err := admin.ListOffsetsAfterMilli(p.ctx, asked, p.plan.Topic)
		must(err)
		found := listed[p.plan.Topic][0]
		must(found.Err)
		p.report.ByTime[asked] = nil
		if found.Timestamp >= 0 { // without one it is the end of the partition
			p.report.ByTime[asked] = &found.Offset
		}
	}
}

func (p *program) copy() {
	session, err := kgo.NewGroupTransactSession(append(
		p.common(),
		kgo.ConsumerGroup(p.plan.Copier),
		kgo.ConsumeTopics(p.plan.Topic),
		kgo.TransactionalID(p.plan.TransactionalID+"-copy"),
		kgo.RequireStableFetchOffsets(),
	)...)
	must(err)
	defer session.Close()
	for copied, attempts := 0, 0; copied < p.plan.Total; attempts++ {
		records := p.poll(session.PollFetches)
		must(session.Begin())
		for _, record := range records {
			value := []byte(strings.ToUpper(string(record.Value)))
			made := &kgo.Record{Topic: p.plan.Output, Partition: record.Partition, Value: value}
			session.Produce(p.ctx, made, func(_ *kgo.Record, err error) { must(err) })
		}
		must(session.Client().Flush(p.ctx))
		committed, err := session.End(p.ctx, kgo.TransactionEndTry(attempts > 0))
		must(err)
		if committed {
			copied += len(records)
		}
	}
}

func (p *program) readCopy() {
	client := p.client(kgo.ConsumeTopics(p.plan.Output))
	defer client.Close()
	for len(p.report.Copied) < p.plan.Total {
		for _, record := range p.poll(client.PollFetches) {
			p.report.Copied = append(p.report.Copied, asSeen(record))
		}
	}
}
