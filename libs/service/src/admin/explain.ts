import { adminApi } from '@isthmus/proto';
import { type Candidate, type ExplainedStep, type Explanation, formatDestination } from '@isthmus/tunnel';
import type { AdminBackend } from '../admin-backend.ts';
import { adviceFor, verdictOf } from './advice.ts';
import { tunnelsBySession } from './messages.ts';
import { destinationOf, routingOf } from './routing.ts';

/** Sessions that are told of: of all steps, and of those that no strategy leads to. */
const MAX_CANDIDATES = 1000;
const MAX_OTHERS = 100;

const { Standing } = { Standing: adminApi.Candidate_Standing };

const STANDINGS = {
  taken: Standing.STANDING_TAKEN,
  equal: Standing.STANDING_EQUAL,
  later: Standing.STANDING_LATER,
  not: Standing.STANDING_NOT,
} as const satisfies Record<Candidate['standing'], adminApi.Candidate_Standing>;

type ExplainRpc = Pick<adminApi.AdminServiceImplementation, 'explain'>;

export function explainRpc(backend: AdminBackend): ExplainRpc {
  return {
    async explain(request) {
      const routing = routingOf(backend.routing);
      const destination = destinationOf(request.destination);
      const tenant = request.tenant || routing.tenant;
      const explanation = routing.explain(tenant, destination);
      const open = tunnelsBySession([...backend.tunnels()].filter(({ role }) => role === 'gateway'));
      const message = (candidate: Candidate) => candidateMessage(candidate, open.get(candidate.session.sessionId) ?? 0);
      const { taken } = explanation;
      return {
        ...{ destination: formatDestination(destination), tenant, zone: routing.zone },
        steps: stepsOf(explanation, message),
        others: explanation.others.slice(0, MAX_OTHERS).map(message),
        ...{ sessionId: taken?.sessionId ?? '', agentId: taken?.agentId ?? '', hubId: taken?.hubId ?? '' },
        verdict: verdictOf(explanation, tenant, routing),
        advice: adviceFor(explanation, { tenant, backend }),
      };
    },
  };
}

function stepsOf(
  { steps }: Explanation,
  message: (candidate: Candidate) => adminApi.Candidate,
): adminApi.RoutingStep[] {
  let left = MAX_CANDIDATES;
  return steps.map(({ strategy, keys, candidates }: ExplainedStep) => {
    const told = candidates.slice(0, left);
    left -= told.length;
    return {
      ...{ strategy, keys: [...keys], candidates: told.map(message) },
      taken: candidates.some(({ standing }) => standing === 'taken'),
    };
  });
}

function candidateMessage({ session, ...candidate }: Candidate, open: number): adminApi.Candidate {
  const { sessionId, agentId, hubId } = session;
  const { key, zone, draining, quarantined, reachable, suspected, standing, why } = candidate;
  return {
    ...{ sessionId, agentId, hubId, key, zone, why, draining, reachable, suspected, open },
    ...{ standing: STANDINGS[standing], quarantined: quarantined !== undefined, quarantineReason: quarantined ?? '' },
  };
}
