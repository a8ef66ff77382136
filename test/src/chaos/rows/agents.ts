import { type Member, silentListener, until } from '../../harness/index.ts';
import { clock } from '../../rig/clock.ts';
import { dial, PROTOCOLS, type Protocol } from '../../rig/dial.ts';
import { type Plane, startPlane } from '../../rig/plane.ts';
import type { Context, Row } from '../row.ts';

const PENDING = 100;
/** How soon the callers of an agent's tunnels hear that it is gone, in milliseconds. */
const ENDS_WITHIN = 100;
/** Only the first agent says that it reaches this address. Without that agent, any other does. */
const HOST = '127.0.2.1';
/** The plane could not carry the dial, as opposed to a refusal by the destination. */
const RIGHT_ERROR = /No agent available|^503 /;

interface Answer {
  readonly at: number;
  readonly error?: string;
}

/**
 * Dials that wait at one agent for a destination that does not answer. The destination answers once the agent is killed. So each dial
 * can succeed if it is retried through another agent, and would otherwise wait for its whole deadline.
 */
const killed: Row<Plane> = {
  name: 'agent-kill',
  fault: `agent SIGKILL with ${PENDING} pending dials`,
  holds:
    'every dial answered within 1 s: success through another agent, or the right error; callers told within 100 ms',
  bounds: { callersEndMs: ENDS_WITHIN, destinationsEndMs: 1000 },
  topology: (scope) =>
    startPlane(scope, {
      gatewayFlags: { 'proxy-strategies': 'destHost,default' },
      agentFlags: (index) => (index === 0 ? { 'agent-identifiers': `ipv4=${HOST}` } : {}),
    }),
  async inject(context) {
    const { plane, scope, strike, measure, hold } = context;
    const [agent] = plane.agents as [Member];
    // Room for all dials, which come again at once.
    const late = await silentListener(scope, { host: HOST, backlog: 256 });
    const answers = pending(context, `${HOST}:${late.port}`);
    await until(async () => (await pendingDials(plane)) >= PENDING, { what: `${PENDING} dials that wait` });
    const { at } = await strike({ takes: ({ agentId }) => agentId === agent.id }, async () => {
      const gone = agent.kill();
      late.wake();
      await gone;
    });
    const all = await Promise.all(answers);
    const failed = all.flatMap(({ error }) => (error === undefined ? [] : [error]));
    measure('slowest of the pending dials', Math.max(...all.map((answer) => answer.at)) - at, 'ms', 1000);
    measure('pending dials that failed', failed.length);
    const wrong = failed.filter((error) => !RIGHT_ERROR.test(error));
    if (wrong.length > 0) throw new Error(`${wrong.length} pending dials had another error, such as: ${wrong[0]}`);
    await hold(10_000, 2000);
    await agent.restart();
  },
};

function pending({ plane }: Context<Plane>, destination: string): Promise<Answer>[] {
  return Array.from({ length: PENDING }, async (_, index) => {
    const protocol = PROTOCOLS[index % PROTOCOLS.length] as Protocol;
    try {
      const { stream } = await dial(plane.doors, index % plane.doors.length, protocol, destination);
      stream.on('error', () => {}).destroy();
      return { at: clock() };
    } catch (error) {
      return { at: clock(), error: (error as Error).message };
    }
  });
}

async function pendingDials({ gateways }: Plane): Promise<number> {
  const name = 'konnectivity_network_proxy_server_pending_backend_dials';
  const counts = await Promise.all(gateways.map((gateway) => gateway.value(name)));
  return counts.reduce((sum, count) => sum + count, 0);
}

export const agentRows: readonly Row<Plane>[] = [killed];
