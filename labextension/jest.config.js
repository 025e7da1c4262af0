// The tested files know nothing of JupyterLab's run time, so the tests run in plain node, in about a second.
module.exports = {
  testEnvironment: 'node',
  testRegex: 'src/__tests__/.*\\.spec\\.ts$',
  transform: {
    '\\.tsx?$': [
      'ts-jest',
      {
        tsconfig: { module: 'commonjs', esModuleInterop: true, target: 'ES2020', jsx: 'react' },
        diagnostics: false
      }
    ]
  }
};
