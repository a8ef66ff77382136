import { hubRole } from '@isthmus/backend-hub';
import { proxyServer } from '@isthmus/flags';
import { gatewayRole } from '@isthmus/frontend-gw';
import { runServer } from '@isthmus/plane';

await runServer(proxyServer, { gateway: gatewayRole, hub: hubRole });
