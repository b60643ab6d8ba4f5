// The daily load: a ramp to 50 visitors, a spike to 200, and a ramp down.
//   k6 run -e TARGET=http://ADDRESS cluster/demo/load/load-test.js
import http from 'k6/http';
import { check, sleep } from 'k6';

export const options = {
  scenarios: {
    visitors: {
      executor: 'ramping-vus',
      startVUs: 0,
      stages: [
        { duration: '2m', target: 50 }, // ramp-up
        { duration: '5m', target: 50 }, // sustain
        { duration: '10m', target: 200 }, // spike
        { duration: '5m', target: 200 }, // peak
        { duration: '3m', target: 0 }, // ramp-down
        { duration: '10m', target: 0 }, // cool-down: the fleet shrinks
      ],
      gracefulRampDown: '30s',
    },
  },
  thresholds: {
    http_req_failed: ['rate<0.05'],
    'http_req_duration{expected_response:true}': ['p(95)<2000'],
  },
};

const target = __ENV.TARGET || 'http://localhost:8080';

export default function () {
  const page = http.get(`${target}/`);
  check(page, { 'page is shown': (answer) => answer.status === 200 });
  if (Math.random() < 0.2) {
    const order = http.post(`${target}/orders`);
    check(order, { 'order is taken': (answer) => answer.status === 202 });
  }
  sleep(1);
}
