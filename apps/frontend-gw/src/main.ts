import { frontendGateway } from '@isthmus/flags';
import { runServer } from '@isthmus/plane';
import { gatewayRole } from './index.ts';

await runServer(frontendGateway, { gateway: gatewayRole });
