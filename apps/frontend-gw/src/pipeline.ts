import { type RoutingOptions, routed, type Suspects } from '@isthmus/directory';
import type { Tenancy } from '@isthmus/plane';
import {
  type Attach,
  AttachRefused,
  attachesInTurns,
  DialError,
  type DialLimiter,
  type GatewayTunnels,
  inTurns,
  observed,
  refuseWhenScarce,
  type Stage,
} from '@isthmus/tunnel';
import type { DirectDials } from './direct.ts';

interface GatewayStagesOptions extends RoutingOptions {
  readonly suspects: Suspects;
  readonly limiter: Pick<DialLimiter, 'limit'>;
  /** Set where several tenants take turns. */
  readonly tenancy?: Pick<Tenancy, 'permits'> | undefined;
  /** Unset where neither a flag nor a tenant's file can name what the gateway dials itself. */
  readonly directDials?: Pick<DirectDials, 'direct'> | undefined;
  /** Unset: tunnels end with what carries them. */
  readonly gatewayTunnels?: Pick<GatewayTunnels, 'resume'> | undefined;
}

/** A dial's way through a gateway, from the caller's edge to a hub's Dial. The test beside it says why in this order. */
export function gatewayStages(options: GatewayStagesOptions): readonly Stage[] {
  const { observation, limiter, tenancy, directDials, gatewayTunnels, suspects } = options;
  const observe: Stage = (next) => observed('gateway', next, observation);
  const limit: Stage = (next) => limiter.limit(next);
  const takeTurns: Stage = (next) => inTurns(next);
  // By name or literal address. An agent judges what a name was resolved to.
  const permit: Stage = (next) => (request) => {
    const refusal = tenancy?.permits(request);
    return refusal ? Promise.reject(refusal) : next(request);
  };
  const route: Stage = () => routed(options, suspects);
  const direct = directDials?.direct;
  const resume = gatewayTunnels?.resume;
  return [
    observe,
    limit,
    ...(tenancy ? [takeTurns, permit] : []),
    refuseWhenScarce,
    ...(direct ? [direct] : []),
    ...(resume ? [resume] : []),
    route,
  ];
}

interface GatewayAttachOptions extends Pick<GatewayStagesOptions, 'tenancy'> {
  readonly limiter: Pick<DialLimiter, 'limitAttaches'>;
  /** Passes an attach on to the agent. */
  readonly attach: Attach;
}

/** The way of an attach of `isthmus hold` through a gateway: as a dial's, because hold is a caller. */
export function gatewayAttach({ limiter, tenancy, attach }: GatewayAttachOptions): Attach {
  const permitted: Attach = async (request) => {
    const refusal = tenancy?.permits(request);
    if (!refusal) return attach(request);
    // Final: hold would ask again until it gives the tunnel up.
    const { code, message } = refusal;
    throw new DialError(code, message, { cause: new AttachRefused(message, { final: true, cause: refusal.cause }) });
  };
  return limiter.limitAttaches(tenancy ? attachesInTurns(permitted) : permitted);
}
