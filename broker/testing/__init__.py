"""What tests of programs that use delaylog need: a pytest plugin with a broker as a fixture."""
