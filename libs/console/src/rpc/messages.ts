import type { Config, Dial, Hub, Json, Members, Refusal, Session, Status, Tenants } from '@isthmus/findings';
import type { adminApi } from '@isthmus/proto/admin';

export type { Config, Dial, Hub, Members, Refusal, Session, Status, Tenants };
export type Member = Json<adminApi.Member>;
export type Tunnel = Json<adminApi.Tunnel>;
export type DialEvent = Json<adminApi.WatchDialsResponse>;
export type Phase = Json<adminApi.Phase>;
export type Explanation = Json<adminApi.ExplainResponse>;
export type Candidate = Json<adminApi.Candidate>;
export type History = Json<adminApi.GetHistoryResponse>;
export type Quarantined = Json<adminApi.QuarantinedAgent>;
export type TriedDial = Json<adminApi.DialResponse>;
export type Drained = Json<adminApi.DrainResponse>;
export type LogLevels = Json<adminApi.SetLogLevelResponse>;

/** What the page reads, also of other members. */
export interface Reads {
  GetStatus: [request: object, answer: Status];
  GetConfig: [request: object, answer: Config];
  GetHistory: [request: { readonly tenant?: string }, answer: History];
  ListMembers: [request: object, answer: Members];
  ListSessions: [request: { readonly tenant?: string }, answer: { readonly sessions: Session[] }];
  ListTunnels: [request: { readonly tenant?: string }, answer: { readonly tunnels: Tunnel[] }];
  ListTenants: [request: object, answer: Tenants];
  ListQuarantined: [request: object, answer: { readonly agents: Quarantined[] }];
  Explain: [request: { destination: string; tenant: string; caller: string }, answer: Explanation];
}

interface AgentName {
  readonly tenant: string;
  readonly agentId: string;
}

/** What the page does, at its own member. */
export interface Actions {
  Dial: [
    request: {
      destination: string;
      tenant: string;
      agentId?: string;
      timeoutMs?: number;
      firstByteTimeoutMs?: number;
    },
    answer: TriedDial,
  ];
  Kick: [
    request: { readonly reason: string } & ({ dialId: string } | { sessionId: string } | { agent: AgentName }),
    answer: Json<adminApi.KickResponse>,
  ];
  Quarantine: [
    request: { agent: AgentName; lift?: boolean; reason?: string },
    answer: Json<adminApi.QuarantineResponse>,
  ];
  SetLogLevel: [request: { level: string; durationMs?: number }, answer: LogLevels];
  Drain: [request: { dryRun: boolean }, answer: Drained];
}

/** As WatchDialsRequest in the API. */
export interface Watched {
  readonly tenant?: string;
  readonly destination?: string;
  readonly onlyFailed?: boolean;
  readonly slowerThanMs?: number;
  readonly role?: number;
  readonly recent?: number;
  readonly phases?: boolean;
  readonly firstBytes?: boolean;
}
