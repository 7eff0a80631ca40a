/* A low-level runtime that does nothing. */
int main(void)
{
    return 0;
}
