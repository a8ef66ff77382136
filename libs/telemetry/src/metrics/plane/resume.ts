import type { GiveUpReason } from '@isthmus/tunnel';
import type { Subscriptions } from '../../subscribe.ts';
import type { Families } from '../exposition/families.ts';

/** In seconds: from a round trip within a site to what `--resume-timeout` usually allows. */
const PAUSE_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3.5, 5, 10, 15, 30, 60, 120];

/** `resumed`: after it had lost what carried it. `moved`: while the old stream still carried. */
const WAYS = ['resumed', 'moved'] as const;

const REASONS: readonly GiveUpReason[] = ['timeout', 'agent', 'end'];

/** What becomes of a gateway's tunnels whose hub, session or link is lost or about to go. */
export function resumeMetrics(families: Families): Subscriptions {
  const resumed = families.counters(
    'resumed_tunnels_total',
    'How often tunnels went on through another stream, by how: resumed (after their hub, session or link was lost) or moved (while the old stream still carried).',
    ['how'],
  );
  for (const how of WAYS) resumed.of({ how });
  const givenUp = families.counters(
    'resume_given_up_total',
    'Tunnels that lost what carried them and did not go on, by reason: timeout (no way to the agent in --resume-timeout), agent (it has gone, or does not know the tunnel) or end (their caller or an operator ended them meanwhile).',
    ['reason'],
  );
  for (const reason of REASONS) givenUp.of({ reason });
  const detached = families.gauge(
    'detached_tunnels',
    'Current number of tunnels that nothing carries: they wait for another way to their agent.',
  );
  const pauses = families.histogram(
    'resume_pause_seconds',
    'How long tunnels paused that were resumed. Tunnels that were moved do not pause.',
    PAUSE_BUCKETS,
  );
  return {
    'tunnel:detach': () => detached.inc(),
    'tunnel:attach'(_tunnel, paused) {
      if (paused === 0) {
        resumed.of({ how: 'moved' }).inc();
        return;
      }
      resumed.of({ how: 'resumed' }).inc();
      detached.dec();
      pauses.observe(paused / 1000);
    },
    'tunnel:give-up'(_tunnel, reason) {
      givenUp.of({ reason }).inc();
      detached.dec();
    },
  };
}

/** @param kept reads the bytes that the process keeps; undefined if it resumes no tunnels */
export function keptMetrics(families: Families, kept: () => number | undefined): void {
  families.measured(
    'resume_kept_bytes',
    'Bytes that open tunnels have sent and keep until the other end has them, to send them again if a link is lost. Absent with --resume-timeout 0.',
    kept,
  );
}
