// The tested modules do not import JupyterLab at run time, so plain Node is enough.
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
