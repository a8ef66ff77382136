import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { dial, type Edge, echoes, endless } from '../edges/rig.ts';
import { echo, type LogLine, type Program, type Scope, stalled, tempDir, until } from '../harness/index.ts';
import { readRecords } from '../plane/audit-records.ts';
import { bothProtocols, MIB, rowsOf, transferAll } from './paces.ts';
import { across, type Rig } from './rig.ts';

/** The plane ends a stalled reader after 10 s; its stream and its share must fill first. In milliseconds. */
const ENDED_WITHIN = 60_000;

/** What a neighbour moves meanwhile. It takes turns with the stalled reader, and then has the stream for itself. */
const NEIGHBOURS = { bytes: 8 * MIB, deadline: 60_000 };

/** Fails unless neighbours that were open before, and others that open meanwhile, go on and lose nothing. */
async function neighboursLoseNothing(scope: Scope, { server }: Rig, stand: () => Promise<unknown>): Promise<void> {
  const [edge] = bothProtocols(server) as [Edge];
  const target = await echo(scope);
  const before = await dial(scope, edge, target.authority);
  assert.ok(await echoes(before, 'before'));
  const standing = stand();
  const rows = rowsOf([edge], [{ name: 'full speed' }]);
  const transfers = await transferAll(scope, rows, NEIGHBOURS);
  for (const { row, arrived, sent, error } of transfers) assert.equal(arrived, sent, `${row}: ${error}`);
  await standing;
  assert.ok(await echoes(before, 'behind'));
}

function stalledEnds(program: Program): Promise<LogLine> {
  return program.waitForLog(({ msg, closedBy }) => msg === 'tunnel closed' && closedBy === 'plane', {
    deadline: ENDED_WITHIN,
    what: 'the end of the one that stands, by the plane',
  });
}

async function counted(program: Program, role: string): Promise<void> {
  const counts = await program.metric('isthmus_stalled_tunnels_ended_total');
  assert.deepEqual(
    [...counts].filter(([, count]) => count > 0),
    [[`{role="${role}"}`, 1]],
  );
}

describe('a reader that stops reading and blocks its stream', { concurrency: true }, () => {
  across(
    [{ server: 'our', agent: 'Go' }],
    'is closed by the plane at a server, which logs, audits and counts it',
    async (scope, start) => {
      const audit = `${await tempDir(scope)}/audit.log`;
      const rig = await start({ serverFlags: { 'audit-log': audit } });
      const { server } = rig;
      const source = await endless(scope);
      await neighboursLoseNothing(scope, rig, async () => {
        const [, edge] = bothProtocols(server) as [Edge, Edge];
        const tunnel = await dial(scope, edge, source.authority);
        tunnel.pause();
        const { text, level } = await stalledEnds(server.program);
        assert.match(
          `${text}`,
          /^the caller read nothing for 10 s while \d+ bytes waited for it and held up every other tunnel/,
        );
        assert.equal(level, 'warn');
        await until(() => tunnel.destroyed || source.open === 0, { what: 'the end of the tunnel' });
      });
      await counted(server.program, 'hub');
      const record = await until(() => readRecords(audit).find(({ closed }) => closed?.by === 'plane'), {
        what: 'the record of the one that was ended',
      });
      assert.match(JSON.stringify(record), /the caller read nothing for 10 s/);
    },
  );

  across(
    [{ server: 'Go', agent: 'our' }],
    'is closed by the plane at an agent, which logs and counts it',
    async (scope, start) => {
      const rig = await start();
      const [agent] = rig.agents as [Program];
      const target = await stalled(scope);
      await neighboursLoseNothing(scope, rig, async () => {
        const [edge] = bothProtocols(rig.server) as [Edge];
        const tunnel = await dial(scope, edge, target.authority);
        const chunk = Buffer.alloc(MIB / 4);
        const write = () => {
          while (!tunnel.destroyed && tunnel.write(chunk));
        };
        tunnel.on('drain', write).resume();
        write();
        const { text, level } = await stalledEnds(agent);
        assert.match(`${text}`, /^the destination read nothing for 10 s while \d+ bytes waited for it/);
        assert.equal(level, 'warn');
      });
      await counted(agent, 'agent');
    },
  );
});
