import assert from 'node:assert/strict';
import test from 'node:test';
import { otlpReceiver } from '@isthmus/telemetry/testing';
import { allInOne, connectThrough, scoped, until, web } from '../harness/index.ts';

test(
  'server and agent export their metrics over OTLP, each under its own name, if the environment says so',
  scoped(async (scope) => {
    const receiver = scope.use(await otlpReceiver());
    const env = {
      OTEL_METRICS_EXPORTER: 'otlp',
      OTEL_EXPORTER_OTLP_METRICS_ENDPOINT: `${receiver.endpoint}/v1/metrics`,
      OTEL_METRIC_EXPORT_INTERVAL: '100',
    };
    const { server } = await allInOne(scope, { env });
    const { port } = await web(scope);
    const answer = await connectThrough(scope, { via: server.connect, destination: `127.0.0.1:${port}` });
    answer.socket.destroy();
    assert.equal(answer.status, 200);

    /** How many dials a program counts in its histogram of this name, in its last export. */
    const dials = (program: string, name: string): number => {
      const exported = receiver.exports.findLast(([first]) => first?.resource['service.name'] === program);
      const [point] = exported?.find((metric) => metric.name === name)?.points ?? [];
      return (point?.buckets?.counts ?? []).reduce((sum, count) => sum + count, 0);
    };
    const counted = () =>
      dials('proxy-server', 'konnectivity_network_proxy_server_dial_duration_seconds') === 1 &&
      dials('proxy-agent', 'konnectivity_network_proxy_agent_dial_duration_seconds') === 1;
    await until(counted, { what: 'both programs export the dial' });
    const instances = new Set(receiver.exports.map(([first]) => first?.resource['service.instance.id']));
    assert.equal(instances.size, 2);
    assert.deepEqual(receiver.spans, [], 'no traces');
  }),
);
