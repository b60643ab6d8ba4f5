// The flash sale: 20 visitors, then 500 within half a minute, a plateau, and then none.
//   k6 run -e TARGET=http://ADDRESS cluster/demo/load/load-test-flash-sale.js
import http from 'k6/http';
import { check, sleep } from 'k6';

export const options = {
  scenarios: {
    visitors: {
      executor: 'ramping-vus',
      startVUs: 20,
      stages: [
        { duration: '5m', target: 20 }, // baseline
        { duration: '30s', target: 500 }, // flash spike
        { duration: '15m', target: 500 }, // sustained
        { duration: '30s', target: 0 },
        { duration: '50m', target: 0 }, // cool-down: one worker about every 10 minutes
      ],
      gracefulRampDown: '30s',
    },
  },
  thresholds: {
    http_req_failed: ['rate<0.10'],
    'http_req_duration{expected_response:true}': ['p(95)<5000'],
  },
};

const target = __ENV.TARGET || 'http://localhost:8080';

export default function () {
  const page = http.get(`${target}/`);
  check(page, { 'page is shown': (answer) => answer.status === 200 });
  if (Math.random() < 0.5) {
    const order = http.post(`${target}/orders`);
    check(order, { 'order is taken or refused politely': (answer) => answer.status === 202 || answer.status === 503 });
  }
  sleep(0.5);
}
