// What clients that reach their API server by name pass through.
import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { freePort, killChild, newTrust, open, startServer, tempDir, until } from '../harness/index.ts';
import { NAME } from '../rig/load/hello.ts';
import type { Family } from './families.ts';

/** Nothing. */
export const nobody: Family = async (_scope, port) => ({ port, named: true, groups: {} });

export const hub: Family = async (scope, destinationPort) => {
  const trust = await newTrust(scope);
  const flags = { 'api-server-name': NAME, 'api-server': `127.0.0.1:${destinationPort}` };
  const { program, agentPort } = await startServer(scope, trust, flags);
  return { port: agentPort, named: true, groups: { hub: [program.pid] } };
};

export function haproxy(path: string): Family {
  return async (scope, destinationPort) => {
    const port = await freePort();
    const config = `${await tempDir(scope)}/haproxy.cfg`;
    await writeFile(
      config,
      `global
  nbthread 1
  maxconn 5000
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  option splice-auto
frontend names
  bind 127.0.0.1:${port}
  tcp-request inspect-delay 5s
  tcp-request content accept if { req_ssl_hello_type 1 }
  use_backend api if { req_ssl_sni -i ${NAME} }
backend api
  balance leastconn
  server api 127.0.0.1:${destinationPort}
`,
    );
    const child = spawn(path, ['-db', '-f', config], { stdio: 'inherit' });
    scope.defer(() => killChild(child));
    await until(() => open(scope, { port }), { what: 'HAProxy to listen' });
    return { port, named: true, groups: { haproxy: [child.pid ?? 0] } };
  };
}
