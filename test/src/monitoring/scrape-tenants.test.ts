import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import test from 'node:test';
import { newPassword } from '@isthmus/admission';
import { eventually, freePort, newTrust, type Scope, scoped, startAgent, startServer } from '../harness/index.ts';
import type { TenantTrust } from '../tenants/tenant-trust.ts';
import { TenantsDirectory } from '../tenants/tenants-directory.ts';
import { prometheus } from './promtool.ts';
import { startPrometheus } from './scraper.ts';

/** Tenants with an agent each. One more has none. */
const ALIVE = Number(process.env.ISTHMUS_SCRAPED_TENANTS ?? 2);

/** A kubelet of a tenant's cluster: serves metrics by TLS with a certificate of its CA. @returns its port */
async function kubelet(scope: Scope, { cluster }: TenantTrust): Promise<number> {
  const { cert, key } = await cluster.server();
  const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (_, response) => {
    response.end('scraped_through_the_plane 1\n');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  scope.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  return (server.address() as AddressInfo).port;
}

test(
  "Prometheus finds tenants' targets at /sd and scrapes them through the plane; a tenant without agents delays no other",
  { skip: prometheus === undefined && 'Prometheus is not installed' },
  scoped(async (scope) => {
    const [trust, directory] = [await newTrust(scope), await TenantsDirectory.create(scope)];
    const names = [...Array.from({ length: ALIVE }, (_, index) => `t${index}`), 'dead'];
    const tenants = await Promise.all(
      names.map(async (name) => {
        const [tenant, port] = [await directory.trust(name), await freePort()];
        const { token, sha256 } = newPassword();
        const callers = [...(tenant.file.callers ?? []), { port }, { passwords: [{ name: 'prometheus', sha256 }] }];
        const targets = [`127.0.0.1:${await kubelet(scope, tenant)}`];
        // What the tenant's own port shows.
        const { cert: certificate, key } = await tenant.cluster.server();
        const shown = { serverNames: [tenant.serverName], certificate, key };
        await directory.write({ ...tenant.file, server: shown, callers, scrape: [{ job: 'kubelet', targets }] });
        return { name, tenant, port, token };
      }),
    );
    const own = { 'uds-name': '', 'cluster-ca-cert': '', 'tenants-dir': directory.path };
    const server = await startServer(scope, trust, own);
    for (const { name, tenant } of tenants.slice(0, ALIVE)) {
      const { cert, key } = await tenant.agent(name);
      const identity = { 'agent-id': name, 'agent-cert': cert, 'agent-key': key, tenant: name };
      await startAgent(scope, trust, server.agentPort, identity);
    }
    const scrapes = await Promise.all(
      tenants.map(async ({ name, tenant, port, token }) => {
        const { cert, key } = await tenant.caller();
        const byToken = name === 't0';
        return {
          job_name: name,
          http_sd_configs: [{ url: `http://127.0.0.1:${server.program.adminPort}/sd?tenant=${name}` }],
          proxy_url: `https://${byToken ? `${name}:${token}@` : ''}127.0.0.1:${port}`,
          // Of the gateway and of the kubelet: Prometheus has one for both.
          tls_config: { ca_file: tenant.cluster.cert, ...(!byToken && { cert_file: cert, key_file: key }) },
          relabel_configs: [{ source_labels: ['__meta_isthmus_tenant'], target_label: 'tenant' }],
        };
      }),
    );
    const port = await startPrometheus(scope, { everySeconds: 2, scrapes });
    await eventually(async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/api/v1/query?query=up`, {
        headers: { connection: 'close' },
      });
      const { data } = (await answer.json()) as {
        data: { result: { metric: Record<string, string>; value: [number, string] }[] };
      };
      const up = data.result.map(({ metric, value: [, value] }) => `${metric.tenant} ${metric.__name__} ${value}`);
      const wanted = names.map((name) => `${name} up ${name === 'dead' ? 0 : 1}`);
      assert.deepEqual(up.sort(), wanted.sort());
    });
  }),
);
